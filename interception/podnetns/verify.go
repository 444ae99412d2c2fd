// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"os"

	"github.com/meshcni/meshcni/interception"
)

// Verify returns the open file as a namespace, if it is a network namespace that has one of the
// pod's addresses and is neither the host's nor this process's own. Others hand such files over,
// for example on a socket. Verify searches for nothing, and trusts the sender to mean this pod,
// which needs no UID here: any program that can enter a namespace may give it any address.
//
// It takes ownership of the file, and closes it on an error. The error is a [*RefusalError]. It
// wraps [interception.ErrNotNetns] if the obstacle is [ObstacleNotNetns], and
// [interception.ErrHostNetns] if it is [ObstacleHostNetwork] and the pod is not in the host's
// network itself. A nil file is no namespace. On other systems than Linux the error is
// [interception.ErrUnsupported].
func (f *Finder) Verify(pod Pod, file *os.File) (*interception.Netns, error) {
	return f.verify(pod, file, f.options())
}

// VerifyOwn is Verify, but accepts this process's own namespace unless it is the host's: for an
// agent that is itself in a pod.
func (f *Finder) VerifyOwn(pod Pod, file *os.File) (*interception.Netns, error) {
	options := f.options()
	options.Own = true
	return f.verify(pod, file, options)
}

func (r *Records) options() interception.NetnsOptions {
	return interception.NetnsOptions{ProcRoot: r.roots.proc()}
}
