// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// A pod is queried at each of its addresses.
func ExampleURLs() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.2"}, {IP: "fd00:10:244:1::2"}}},
	}
	for _, url := range scenario.URLs(pod, 8080) {
		fmt.Println(url)
	}
	// Output:
	// http://10.244.1.2:8080/
	// http://[fd00:10:244:1::2]:8080/
}
