// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

// backends returns the dataplanes that a node may have.
func backends(t testing.TB) map[string]interception.Dataplane {
	t.Helper()
	all := map[string]interception.Dataplane{}
	native, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all["nftables"] = native
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		if all["iptables "+string(flavour)], err = iptables.New(iptables.Options{Flavour: flavour}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestPackets sends real packets through the plan of a pod, on each backend, and compares where
// they end with package trace.
func TestPackets(t *testing.T) {
	t.Parallel()
	for annotations, packets := range map[string][]string{
		"": {
			"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080", "tcp in eth0 [2001:db8::9]:40000 > [fd00:10:244:1::a]:8080",
			"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:15008",
			"tcp in eth0 169.254.7.127:40000 > 10.244.1.10:8080",
			"tcp in eth0 [fd16:9254:7127:1337:ffff:ffff:ffff:ffff]:40000 > [fd00:10:244:1::a]:8080",
			"tcp uid 1000 gid 1000 > 198.51.100.7:443", "tcp uid 1000 gid 1000 > [2001:db8:7::7]:443",
			"tcp uid 0 gid 0 mark 0x539 > 198.51.100.7:443", "tcp uid 0 gid 0 mark 0xa0539 > [2001:db8:7::7]:443",
			"tcp uid 1000 gid 1000 > 10.244.1.10:8080", "tcp uid 1000 gid 1000 > 127.0.0.1:8080", "tcp uid 1000 gid 1000 > [::1]:8080",
			"udp uid 1000 gid 1000 > 198.51.100.7:53", "udp uid 1000 gid 1000 > [2001:db8:7::7]:53",
			"udp uid 0 gid 0 mark 0x539 > 198.51.100.7:53", "tcp uid 1000 gid 1000 > 198.51.100.7:53",
			"udp uid 1000 gid 1000 > 198.51.100.7:443",
			"tcp uid 0 gid 0 mark 0x539 transparent 192.0.2.9:40000 > 10.244.1.10:8080",
			"tcp uid 0 gid 0 mark 0x539 transparent [2001:db8::9]:40000 > [fd00:10:244:1::a]:8080",
		},
		"ambient.istio.io/bypass-inbound-capture=true": {
			"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080", "tcp uid 1000 gid 1000 > 198.51.100.7:443",
		},
		"traffic.istio.io/excludeInterfaces=eth0": {
			"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080", "tcp uid 1000 gid 1000 > 198.51.100.7:443",
		},
		"traffic.istio.io/excludeOutboundPorts=53,443": {
			"tcp uid 1000 gid 1000 > 198.51.100.7:443", "udp uid 1000 gid 1000 > 198.51.100.7:53", "tcp uid 1000 gid 1000 > 198.51.100.7:80",
		},
		"traffic.istio.io/excludeInboundPorts=8080":                {"tcp in eth0 192.0.2.9:40000 > 10.244.1.10:8080"},
		"traffic.istio.io/excludeOutboundIPRanges=198.51.100.0/24": {"tcp uid 1000 gid 1000 > 198.51.100.7:443"},
	} {
		plan := planOf(t, annotations)
		for name, backend := range backends(t) {
			t.Run(annotations+" "+name, func(t *testing.T) {
				t.Parallel()
				pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
					Ports: []uint16{8080}, ProxyPorts: []uint16{15001, 15006, 15008, 15053}, ProxyMark: 0x539,
				})
				if err := pod.Apply(t.Context(), backend, plan); err != nil {
					t.Fatal(err)
				}
				world, err := pod.World(plan)
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range packets {
					compare(t, pod, world, line)
				}
			})
		}
	}
}

func compare(t *testing.T, pod *dataplanetest.Pod, world trace.World, line string) {
	t.Helper()
	packet, err := trace.ParsePacket(line)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pod.Compare(t.Context(), world, packet)
	if errors.Is(err, dataplanetest.ErrNeedsSecondUID) {
		t.Skip(err)
	}
	if err != nil || c.Disagreement != "" {
		t.Errorf("%s: %v\n%s", line, err, c.Report())
	}
}

// TestPodWithoutIPv6OnLoopback applies the plan in a namespace whose lo has no IPv6.
func TestPodWithoutIPv6OnLoopback(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := sandboxtest.NewPod(t)
			if err := kernel.Of(pod.Netns.File()).WriteSysctl("ipv6/conf/lo/disable_ipv6", "1"); err != nil {
				t.Fatal(err)
			}
			facts, err := netfacts.Read(pod.Netns)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := ambient.PodPlan(ambient.DefaultOverrides(true), ambient.IstioNumbers(), facts, "test-ambient")
			if err == nil {
				err = backend.Apply(t.Context(), pod.Netns, plan)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// planOf returns the plan of a pod with DNS capture and one annotation, key=value, or none.
func planOf(t *testing.T, annotation string) *interception.Plan {
	t.Helper()
	pod := interception.Pod{Annotations: map[string]string{}}
	if key, value, found := strings.Cut(annotation, "="); found {
		pod.Annotations[key] = value
	}
	overrides, warnings, err := ambient.Istio().Parse(pod, ambient.DefaultOverrides(true))
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	plan, err := ambient.PodPlan(overrides, ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
