// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Manifest is the content of a text.
type Manifest struct {
	// Pods are the pods and pod templates, in the order of the text.
	Pods []Pod
	// Others name the objects without a pod, such as "Service shop/cart".
	Others []string
	// Untyped are the documents without a kind, which are not Kubernetes objects. The caller may
	// know some, and should refuse the others.
	Untyped []Document
}

// Document is one document of a text.
type Document struct {
	// Line is where it begins, counted from 1.
	Line int
	// JSON is the document in JSON.
	JSON []byte
}

// Pod is a pod, or the template that a workload creates its pods from.
type Pod struct {
	// Name is the kind, namespace and name of the object: "Pod shop/cart-0", "Deployment
	// shop/cart". For an object without a namespace that is "default", as for kubectl.
	Name string
	// Template reports that the object is a workload, and the pod its template. An injector usually
	// adds the proxy when a pod is created, so the template has none.
	Template bool
	// Object is the pod as a v1 Pod in JSON. For a template, it has the workload's namespace and
	// name.
	Object []byte
	// Addresses are the pod's, from its status; nil for a pod without addresses yet, and for a
	// template.
	Addresses []netip.Addr
}

// ErrNoPod means that a manifest describes no pod.
var ErrNoPod = errors.New("it describes no pod and nothing that makes pods")

const remedy = "kubectl get pod NAME -o yaml prints a pod"

// Read finds the pods in a text. It returns [ErrNoPod] if the text is empty, or has only Kubernetes
// objects without a pod. If a part of the text cannot be parsed, the error names the line.
func Read(text []byte) (Manifest, error) {
	documents, err := split(text)
	if err != nil {
		return Manifest{}, err
	}
	var m Manifest
	for _, d := range documents {
		if err := m.document(d); err != nil {
			return Manifest{}, err
		}
	}
	switch {
	case len(m.Pods) > 0 || len(m.Untyped) > 0:
		return m, nil
	case len(m.Others) > 0:
		return Manifest{}, fmt.Errorf("%w, only %s: %s", ErrNoPod, strings.Join(m.Others, ", "), remedy)
	default:
		return Manifest{}, fmt.Errorf("%w: %s", ErrNoPod, remedy)
	}
}

func (m *Manifest) document(d document) error {
	if err := d.checkStrings(); err != nil {
		return err
	}
	text, err := d.json()
	if err != nil {
		return err
	}
	o, err := parseObject(text)
	if err != nil {
		return fmt.Errorf("line %d: %w", d.line, err)
	}
	if o.Kind == "" {
		m.Untyped = append(m.Untyped, Document{Line: d.line, JSON: text})
		return nil
	}
	if err := m.object(o, text); err != nil {
		return fmt.Errorf("line %d: %w", d.line, err)
	}
	return nil
}

// object adds the pods of an object.
func (m *Manifest) object(o object, text []byte) error {
	template, err := o.template()
	switch {
	case err != nil:
		return err
	case o.Kind == "Pod":
		pod, err := o.pod(text)
		m.Pods = append(m.Pods, pod)
		return err
	case template != nil:
		pod, err := o.fromTemplate(*template)
		m.Pods = append(m.Pods, pod)
		return err
	case o.isList():
		return m.list(o)
	default:
		m.Others = append(m.Others, o.name())
		return nil
	}
}

// list adds the pods of a list's items.
func (m *Manifest) list(list object) error {
	if err := list.Items.err; err != nil {
		return fmt.Errorf("items of the %s: want a list: %s", list.Kind, misfit(err))
	}
	for i, item := range list.Items.value {
		if err := m.item(list, item); err != nil {
			return fmt.Errorf("item %d of the %s: %w", i+1, list.Kind, err)
		}
	}
	return nil
}

// item adds the pods of a member of a list. The items of a PodList are Pods, and may omit their
// kind.
func (m *Manifest) item(list object, text []byte) error {
	item, err := parseObject(text)
	if err != nil {
		return err
	}
	if kind := strings.TrimSuffix(list.Kind, "List"); item.Kind == "" && kind != "" {
		item.Kind, item.APIVersion = kind, list.APIVersion
	}
	switch {
	case item.Kind == "":
		return errors.New(`it is not a Kubernetes object: it has no "kind"`)
	case item.isList():
		return errors.New("it is a list itself: give its items in one list")
	}
	return m.object(item, text)
}
