// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodAsJSON(t *testing.T) {
	t.Parallel()
	pod := Pod{
		Namespace: "shop", Name: "cart-0", UID: "1",
		Labels: map[string]string{"app": "cart"}, Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		HostNetwork: true, RunAsUser: new(int64(0)), RunAsGroup: new(int64(5)),
		Containers: []Container{{Name: "app", Args: []string{"x"}, Env: map[string]string{"A": ""}, RunAsUser: new(int64(7)), RunAsGroup: new(int64(8))}},
	}
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"namespace":"shop","name":"cart-0","uid":"1","labels":{"app":"cart"},"annotations":{"sidecar.istio.io/status":"{}"},` +
		`"hostNetwork":true,"runAsUser":0,"runAsGroup":5,` +
		`"containers":[{"name":"app","args":["x"],"env":{"A":""},"runAsUser":7,"runAsGroup":8}]}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Error(diff)
	}
	var back Pod
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod, back); diff != "" {
		t.Error(diff)
	}
}
