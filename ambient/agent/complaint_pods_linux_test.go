// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// TestRedirectionDisabledIsReported has a pod try to opt out by the status annotation, as it could
// until Istio 1.21: the status says that this has no effect, and names the label that has (E25).
func TestRedirectionDisabledIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("b"))
	disabled := object("a")
	disabled.Annotations = map[string]string{"ambient.istio.io/redirection": "disabled"}
	n.feed <- told(disabled)
	n.awaitStatus(a, "a", ambient.StatusEnabled) // it overwrites the annotation
	n.connect(pod, 1)
	n.awaitPods(a, "that pod a alone has the warning", func(pods []Pod) bool {
		return !slices.ContainsFunc(pods, func(one Pod) bool {
			reported := len(one.Warnings) == 1 && one.Warnings[0].Source.Key == "ambient.istio.io/redirection" &&
				strings.Contains(one.Warnings[0].Reason, "istio.io/dataplane-mode to none")
			return reported != (one.UID == "a")
		})
	})
	out := disabled
	out.Labels = mode("none")
	n.feed <- told(out)
	n.awaitPods(a, "pod a outside the mesh", func(pods []Pod) bool { return len(pods) == 1 && pods[0].UID == "b" })
	n.connect(pod, 0)
}

// TestExcludedTrafficGoesDirect has a pod exclude ports and address ranges, as sidecars can (E26).
func TestExcludedTrafficGoesDirect(t *testing.T) {
	t.Parallel()
	outside := dataplanetest.Probe{
		From: dataplanetest.Elsewhere, Src: netip.MustParseAddr("192.0.2.9"), Dst: netip.MustParseAddrPort("10.244.1.10:8080"),
	}
	v4 := dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")}
	v6 := dataplanetest.Probe{Dst: netip.MustParseAddrPort("[2001:db8:7::7]:443")}
	machine := dataplanetest.Probe{From: dataplanetest.InMachine, Dst: v4.Dst}
	for name, test := range map[string]struct {
		key, value      string
		direct, relayed []dataplanetest.Probe
	}{
		"ports out":     {"excludeOutboundPorts", "443", []dataplanetest.Probe{v4, v6}, []dataplanetest.Probe{outside}},
		"ranges":        {"excludeOutboundIPRanges", "198.51.100.0/24", []dataplanetest.Probe{v4}, []dataplanetest.Probe{v6, outside}},
		"only ranges":   {"includeOutboundIPRanges", "2001:db8:7::/48", []dataplanetest.Probe{v4}, []dataplanetest.Probe{v6, outside}},
		"ports in":      {"excludeInboundPorts", "8080", []dataplanetest.Probe{outside}, []dataplanetest.Probe{v4, v6}},
		"only ports in": {"includeInboundPorts", "80", []dataplanetest.Probe{outside}, []dataplanetest.Probe{v4, v6}},
		"interfaces":    {"excludeInterfaces", "vm0", []dataplanetest.Probe{machine}, []dataplanetest.Probe{v4, v6, outside}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{8080}, MachineLink: "vm0"})
			n.paths["a"] = pod.Path()
			a, _ := n.run()
			n.proxy()
			annotated := object("a")
			annotated.Annotations = map[string]string{"traffic.istio.io/" + test.key: test.value, "istio.io/reroute-virtual-interfaces": "vm0"}
			if test.key == "excludeInterfaces" {
				delete(annotated.Annotations, "istio.io/reroute-virtual-interfaces")
			}
			n.feed <- told(annotated)
			n.awaitSelection(a, "a")
			n.send(pod, 0, test.direct...)
			n.send(pod, 1, test.relayed...)
		})
	}
}
