// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// ambientFeature is ambient mode with what each of its permissions is for.
func ambientFeature() feature {
	const cluster = "ClusterRole istio-cni: "
	return feature{
		name: "Ambient", values: ambientValues(),
		prepare: func(p *permissions) { (&ambientScenario{p.Scenario, p.t}).startProxies() },
		needs: []need{
			{"PatchStatus", cluster + "patch pods/status", (*permissions).notAnnotated},
			{"ListNamespaces", cluster + "list namespaces", (*permissions).namespacesNotListed},
			{"WatchNamespaces", cluster + "watch namespaces", (*permissions).namespacesNotWatched},
			{"GetNamespaces", cluster + "get namespaces", (*permissions).pluginKnowsNoNamespace},
		},
	}
}

// ambientCapabilities is ambient mode without repair in place, which takes some capabilities, too.
func ambientCapabilities() feature {
	const daemon = "DaemonSet istio-cni-node: capability "
	values := ambientValues()
	values["repairInPlace"] = false
	return feature{
		name: "AmbientCapabilities", values: values, unready: true,
		needs: []need{
			{"SysAdmin", daemon + "SYS_ADMIN", missed("SYS_ADMIN", "CAP_SYS_ADMIN")},
			{"NetAdmin", daemon + "NET_ADMIN", missed("NET_ADMIN", "CAP_NET_ADMIN")},
			{"SysPtrace", daemon + "SYS_PTRACE", missed("SYS_PTRACE", "CAP_SYS_PTRACE")},
			{"NetBroadcast", daemon + "NET_BROADCAST", missed("NET_BROADCAST", "CAP_NET_BROADCAST")},
		},
	}
}

// nodeCapabilities is ambient mode where the node captures, with what it takes beyond the other
// mode.
func nodeCapabilities() feature {
	return feature{
		name: "NodeCapabilities", values: scenario.Values{"ambient": scenario.Values{"enabled": true, "mode": "node"}},
		needs: []need{{"NetRaw", "DaemonSet istio-cni-node: capability NET_RAW", missed("NET_RAW", "CAP_NET_RAW")}},
		after: func(p *permissions) {
			p.Do("uninstall, so that nothing of the node's form is left", func(context.Context) error {
				return p.UninstallRelease(scenario.ReleaseName)
			})
		},
	}
}

// missed: without a capability, node-ambient logs a line with these words on some node.
func missed(capability string, words ...string) func(*permissions) {
	return func(p *permissions) {
		logs := ""
		p.Await(fmt.Sprintf("%q in the log of a daemon without %s", words, capability), func(ctx context.Context) (bool, error) {
			pods, err := p.Cluster.Client.CoreV1().Pods(scenario.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=istio-cni-node"})
			if err != nil {
				return false, err
			}
			for _, pod := range pods.Items {
				given := pod.Spec.Containers[0].SecurityContext.Capabilities.Add
				if pod.DeletionTimestamp != nil || slices.Contains(given, corev1.Capability(capability)) {
					continue
				}
				log, err := p.Cluster.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
				if err == nil { // else it has just ended, or not started
					logs = string(log)
				}
				if hasLine(logs, append(words, "node-ambient")...) {
					return true, nil
				}
			}
			return false, nil
		})
	}
}

// hasLine reports whether a line of a text has all these words.
func hasLine(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

// notAnnotated: the daemon enrols a pod and cannot annotate it, and logs that.
func (p *permissions) notAnnotated() {
	p.Pod(scenario.Workload{Name: "enrolled", Node: p.Bridge.Name, Change: func(template *corev1.PodTemplateSpec) {
		template.Labels[dataplaneMode] = "ambient"
	}})
	p.awaitLog(p.Bridge, "forbidden", "pods/status")
}

// namespacesNotWatched: the daemon cannot learn of the namespaces' labels, and logs that.
func (p *permissions) namespacesNotWatched() {
	p.Delete(p.Daemon(p.Bridge))
	p.awaitLog(p.Bridge, "forbidden", "namespaces")
}

// namespacesNotListed is namespacesNotWatched with an API server that streams no lists.
func (p *permissions) namespacesNotListed() {
	p.streamNoLists()
	p.namespacesNotWatched()
}

// pluginKnowsNoNamespace: where no agent answers the plugin, it may not read a pod's namespace.
func (p *permissions) pluginKnowsNoNamespace() {
	socket := p.Bridge.Path("/run/istio-cni/pluginevent.sock")
	// The scenario before may have replaced the daemon. Its new agent makes the socket when it starts.
	p.Await("an agent that listens", func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return false, nil //nolint:nilerr // no agent listens yet
		}
		return true, connection.Close()
	})
	p.Changed()
	p.Do("take the agent's socket away", func(context.Context) error { return os.Rename(socket, socket+".away") })
	p.Cleanup("give it back", func(context.Context) error { return os.Rename(socket+".away", socket) })
	p.Start(scenario.Workload{Name: "pod", Node: p.Bridge.Name})
	p.Await("an event that says why", func(ctx context.Context) (bool, error) {
		events, err := p.Cluster.Client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, "namespace") && strings.Contains(e.Message, "forbidden")
		}), err
	})
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		p.t.Errorf("the socket was made anew meanwhile: %v", err)
	}
}
