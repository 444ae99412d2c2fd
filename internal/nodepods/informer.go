// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Resource is the name of pods in the API server's paths.
const Resource = "pods"

// NewClient returns a client of the core API, version v1, that decodes pods as [*Object], and other
// objects only in the form of metadata (PartialObjectMetadata). It replaces the configuration's
// content settings, and sends no request.
func NewClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	version := schema.GroupVersion{Version: "v1"}
	config.APIPath = "/api"
	config.ContentConfig = rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: codecs(version), ContentType: runtime.ContentTypeJSON,
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}
	return client, nil
}

// codecs decode only pods, metadata and the API server's errors.
func codecs(version schema.GroupVersion) runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind("Pod"), &Object{})
	scheme.AddKnownTypeWithName(version.WithKind("PodList"), &objectList{})
	metav1.AddToGroupVersion(scheme, version)
	scheme.AddKnownTypes(metav1.SchemeGroupVersion, &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// ErrNoNode means that the caller gave no name of a node. With an empty one, the API server would
// select the pods that are on no node.
var ErrNoNode = errors.New("the node's name is needed")

// Selection selects the pods of an informer, and what it keeps of them.
type Selection struct {
	// Node is the name of the pods' node. It is required.
	Node string
	// Labels and Fields narrow the pods; nil selects all.
	Labels labels.Selector
	Fields fields.Selector
	// Keep are the names of labels and annotations that are kept even of a pod that is too large. If
	// these are too large by themselves, sentences replace the long values among them.
	Keep []string
}

// NewInformer returns an informer of the selected pods. It has them as [*Object], and keeps only
// what matters of each. The caller runs the informer, which never resyncs by itself. Without a node
// the error is [ErrNoNode].
func NewInformer(client cache.Getter, s Selection) (cache.SharedIndexInformer, error) {
	if s.Node == "" {
		return nil, ErrNoNode
	}
	onNode := fields.OneTermEqualSelector("spec.nodeName", s.Node)
	if s.Fields != nil && !s.Fields.Empty() {
		onNode = fields.AndSelectors(onNode, s.Fields)
	}
	pods := cache.NewFilteredListWatchFromClient(client, Resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector = onNode.String()
		if s.Labels != nil {
			o.LabelSelector = s.Labels.String()
		}
	})
	return NewSteadyInformer(pods, &Object{}, stripper{s.Keep}.strip), nil
}
