// SPDX-License-Identifier: Apache-2.0

package podsource

// CapabilityPodAnnotations is the capability by which a plugin's entry asks the container runtime
// for the annotations of pods. containerd and CRI-O know it; others, and older ones, pass it over.
const CapabilityPodAnnotations = "io.kubernetes.cri.pod-annotations"

// RuntimeConfig is what a container runtime passes to a plugin in its configuration, under
// "runtimeConfig", for the capabilities that the plugin declares
// (https://www.cni.dev/docs/conventions/).
type RuntimeConfig struct {
	// PodAnnotations are all annotations of the pod, for [CapabilityPodAnnotations]. They are nil when
	// the runtime passes none, even if the pod has some.
	PodAnnotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
}
