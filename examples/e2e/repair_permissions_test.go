// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// repairs returns values with which the chart requests all write permissions for pods and nodes.
// These pods' validators fail although the pods are captured; a daemon that may look into their
// namespaces would notice.
func repairs() scenario.Values {
	return scenario.Values{"repairInPlace": false, "settings": scenario.Values{
		"repairInitContainerExitCode": 1, "repairWrites": "100/1s", "readinessTaint": notReady,
		"repairPolicy": "owners=ServiceAccount do=evict; owners=ConfigMap do=delete; owners=none do=label; do=report",
	}}
}

const notReady = "meshcni.io/not-ready"

// broken starts a pod on the node Bridge whose validator fails.
func (p *permissions) broken(name string, owners ...metav1.OwnerReference) {
	w := validated(name, owners...)
	w.Node = p.Bridge.Name
	p.Start(w)
}

// cannotWriteEvents: the daemon cannot write an event on a pod whose validator has failed.
func (p *permissions) cannotWriteEvents() {
	_, _, namespace := owner(p.t, p.Scenario)
	p.broken("reported", namespace)
	p.awaitLog(p.Bridge, "forbidden", "events")
}

// notDone: the daemon cannot repair a pod whose validator has failed, and the pod's event states
// the reason.
func notDone(mode string) func(*permissions) {
	return func(p *permissions) {
		account, configuration, _ := owner(p.t, p.Scenario)
		switch mode {
		case "label":
			p.broken(mode)
		case "evict":
			p.broken(mode, account)
		case "delete":
			p.broken(mode, configuration)
		}
		p.Await("an event that says why", func(ctx context.Context) (bool, error) {
			events, err := p.Cluster.Client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=cni-repair"})
			return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return strings.HasPrefix(e.Message, mode+" failed") && strings.Contains(e.Message, "forbidden")
			}), err
		})
	}
}

// taintStays: the daemon may not use this verb, which it needs to remove its node's taint, and logs
// that.
func taintStays(verb string) func(*permissions) {
	return func(p *permissions) {
		taint := func(ctx context.Context, taint string) error {
			patch := `{"spec":{"taints":[{"key":"` + notReady + `",` + taint + `}]}}`
			_, err := p.Cluster.Client.CoreV1().Nodes().Patch(ctx, p.Bridge.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
		// The daemon of the need before looks for the taint again and again, and may still use its
		// rights until the authorizer knows the role.
		p.awaitAccess("istio-cni", false, authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Name: p.Bridge.Name})
		p.Do("taint the node", func(ctx context.Context) error { return taint(ctx, `"effect":"NoSchedule"`) })
		p.Cleanup("take the taint off", func(ctx context.Context) error { return taint(ctx, `"effect":"NoSchedule","$patch":"delete"`) })
		p.Delete(p.Daemon(p.Bridge))
		p.awaitLog(p.Bridge, "may not "+verb+" nodes")
	}
}
