// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Ref names the pod that is asked for. A container runtime passes its parts to a CNI plugin as
// K8S_POD_NAMESPACE, K8S_POD_NAME and K8S_POD_UID.
type Ref struct {
	// Namespace and Name are needed.
	Namespace, Name string
	// UID tells the pod from others that had or will have its name. It isn't compared when empty. For
	// a static pod it is the one that its mirror has in the annotation kubernetes.io/config.mirror.
	UID string
}

// String is "namespace/name".
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// mirrorAnnotation holds the UID that the kubelet and the runtime know a static pod by. The API
// server has only its mirror, with another UID. See
// https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// Is reports whether a pod of the Ref's name is the one that the Ref means, by its UID or, for a
// static pod's mirror, by the UID in its annotations. A Ref without a UID means any pod of its
// name.
func (r Ref) Is(uid string, annotations map[string]string) bool {
	return r.UID == "" || uid == r.UID || annotations[mirrorAnnotation] == r.UID
}

// Validate refuses what can't be the name of a namespace or a pod. A slash in a name would ask for
// another object, because the name is part of a URL's path.
func (r Ref) Validate() error {
	return errors.Join(validateName("namespace", r.Namespace), validateName("name", r.Name))
}

// maxName is the longest name of a Kubernetes object.
const maxName = 253

// validateName accepts the characters of DNS subdomains (RFC 1123), which the names of namespaces
// and pods consist of.
func validateName(what, name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the pod's %s has %d characters, and may have 1 to %d", what, len(name), maxName)
	}
	for i, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case (c == '-' || c == '.') && i > 0:
		default:
			return fmt.Errorf("the pod's %s %q has %q at position %d, where names have a-z, 0-9, '-' and '.' and start with one of the former",
				what, name, c, i+1)
		}
	}
	return nil
}

// Source returns pods. An error that is [ErrNotFound], [ErrStalePod], [ErrRef] or [ErrNotReady]
// (errors.Is) means what these say; any other error means that the source can't tell now.
type Source interface {
	Pod(ctx context.Context, ref Ref) (interception.Pod, error)
}
