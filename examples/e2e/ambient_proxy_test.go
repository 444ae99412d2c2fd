// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"

	"github.com/meshcni/meshcni/ambient/agent/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// tunnel tells the proxies, by a rollout, which pods have tunnels: connections of the mesh to these
// pods go through them.
func (a *ambientScenario) tunnel(pods ...*corev1.Pod) {
	a.t.Helper()
	workloads := []scenario.Values{}
	for _, pod := range pods {
		addresses := []string{}
		for _, address := range pod.Status.PodIPs {
			addresses = append(addresses, address.IP)
		}
		workloads = append(workloads, scenario.Values{
			"name": pod.Name, "namespace": pod.Namespace, "serviceAccount": "default", "workloadIps": addresses, "protocol": "HBONE",
		})
	}
	document, err := json.Marshal(scenario.Values{"workloads": workloads})
	if err != nil {
		a.t.Fatal(err)
	}
	container := scenario.Values{"name": "istio-proxy", "env": []scenario.Values{{"name": "LOCAL_XDS", "value": string(document)}}}
	patch, err := json.Marshal(scenario.Values{"spec": scenario.Values{"template": scenario.Values{"spec": scenario.Values{
		"containers": []scenario.Values{container},
	}}}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.Do("tell the proxies of tunnels", func(ctx context.Context) error {
		_, err := a.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).
			Patch(ctx, "ztunnel", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	a.awaitProxies(scenario.SystemNamespace)
}

// agent returns what a node's agent says. It needs no API server.
func (a *ambientScenario) agent(node *cluster.Node, of event.Selection) (event.Node, error) {
	return event.Pods(a.t.Context(), node.Path("/run/istio-cni/pluginevent.sock"), of)
}

// awaitServed waits until a node's agent says of pods that they are captured, and that the proxy
// serves them.
func (a *ambientScenario) awaitServed(node *cluster.Node, names ...string) {
	a.t.Helper()
	for _, name := range names {
		var now event.Node
		a.Await("the agent's word on "+name, func(context.Context) (bool, error) {
			var err error
			now, err = a.agent(node, event.Selection{Namespace: a.Namespace, Name: name})
			if err != nil || len(now.Pods) != 1 {
				return false, nil //nolint:nilerr // the agent may just be starting
			}
			pod := now.Pods[0]
			return pod.Rules == "planned" && pod.Listeners == "serves" && pod.InSets, nil
		})
	}
}
