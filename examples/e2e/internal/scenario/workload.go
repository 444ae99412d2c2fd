// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

// Workload describes a pod. The zero value, with a name, is an application on port 8080, not in the
// mesh.
type Workload struct {
	// Name is the name of the Deployment, Job, StatefulSet or pod, and of the application.
	Name string
	// Namespace defaults to the scenario's.
	Namespace string
	// Injected adds a proxy to the pod as the injector does, with its container and its annotation.
	Injected bool
	// NativeSidecar runs the proxy in an init container that keeps running.
	NativeSidecar bool
	// Ports are the application's. Default: 8080.
	Ports []int
	// Arguments replace those with which the application's container serves the ports.
	Arguments []string
	// Annotations are additional annotations of the pod.
	Annotations map[string]string
	// Node is where the pod runs. Default: the scheduler chooses.
	Node string
	// Change makes any other change to the pod.
	Change func(*corev1.PodTemplateSpec)
}

// The containers of a pod.
const (
	applicationContainer = "application"
	proxyContainer       = "istio-proxy"
)

func (w Workload) template() corev1.PodTemplateSpec {
	ports := w.Ports
	if len(ports) == 0 {
		ports = []int{8080}
	}
	arguments := w.Arguments
	if len(arguments) == 0 {
		arguments = []string{"serve", w.Name}
		for _, port := range ports {
			arguments = append(arguments, fmt.Sprint(port))
		}
	}
	application := container(applicationContainer, 1000, arguments...)
	if w.Arguments == nil {
		application.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"/workload", "get", fmt.Sprintf("http://127.0.0.1:%d/", ports[0])}},
		}, PeriodSeconds: 1, TimeoutSeconds: 10}
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": w.Name}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{application}, NodeName: w.Node,
			TerminationGracePeriodSeconds: new(int64(5)), AutomountServiceAccountToken: new(bool), EnableServiceLinks: new(bool),
		},
	}
	if w.Injected || w.NativeSidecar {
		w.inject(&template)
	}
	maps.Copy(template.Annotations, w.Annotations)
	if w.Change != nil {
		w.Change(&template)
	}
	return template
}

// Pod returns the workload as a pod without a controller, as [Scenario.Start] creates it.
func (w Workload) Pod() *corev1.Pod {
	template := w.template()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = w.Name
	return pod
}

func (w Workload) inject(template *corev1.PodTemplateSpec) {
	proxy := container(proxyContainer, 1337, "proxy", "sidecar", w.Name)
	template.Annotations["sidecar.istio.io/status"] = `{"initContainers":[],"containers":["istio-proxy"],"revision":"default"}`
	if w.NativeSidecar {
		template.Annotations["sidecar.istio.io/status"] = `{"initContainers":["istio-proxy"],"containers":[],"revision":"default"}`
		proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		template.Spec.InitContainers = append(template.Spec.InitContainers, proxy)
		return
	}
	template.Spec.Containers = append(template.Spec.Containers, proxy)
}

func container(name string, user int64, arguments ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: product.TestReference("workload", "e2e"), ImagePullPolicy: corev1.PullNever, Args: arguments,
		SecurityContext: &corev1.SecurityContext{RunAsUser: &user, RunAsGroup: &user, AllowPrivilegeEscalation: new(bool)},
	}
}
