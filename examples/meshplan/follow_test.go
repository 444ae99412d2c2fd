// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const fromWorldsPod = "pod: tcp uid 1000 gid 1000 > 198.51.100.7:443"

// TestTraceOfWorld follows a connection over a wire and through a tunnel, and its answer.
func TestTraceOfWorld(t *testing.T) {
	t.Parallel()
	const world = "testdata/world.json"
	got := meshplan(t, "", "trace", "--world", world, "--answer", fromWorldsPod)
	for _, want := range []string{
		"pod: tcp uid 1000 gid 1000 10.244.0.2:32768 > 198.51.100.7:443\nsent by eth0",
		"node: tcp in veth1 10.244.0.2:32768 > 198.51.100.7:443\n  node forward in veth1 out vxlan0\n",
		"my-mesh mangle/pods: src @pods -> set mark 0x7  # pods.mark: packets of pods are marked",
		"node: udp tunnel vxlan0 mark 0x7 192.0.2.1:",
		"other: udp in eth0 192.0.2.1:",
		"delivered to tunnel vxlan0 at 192.0.2.2:4789, from 192.0.2.1:",
		"delivered to application at 198.51.100.7:443",
		"pod: tcp flags syn,ack in eth0 198.51.100.7:443 > 10.244.0.2:32768\ndelivered to uid 1000 gid 1000",
	} {
		if got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("want %q in %+v\n%s", want, got, got.stdout)
		}
	}
	short := meshplan(t, "", "trace", "--world", world, "-o", "short", fromWorldsPod, "pod: udp uid 0 gid 0 > 198.51.100.7:53",
		"node: udp in eth0 10.244.0.2:40000 > 198.51.100.7:53")
	want := "pod, node, other: delivered to application at 198.51.100.7:443; no rule decided\n" +
		"pod, node, other: delivered to resolver (proxy) at 198.51.100.7:53; no rule decided\n" +
		"unroutable: the way back to its source is not by this link (rp_filter); no rule decided\n"
	if short.stdout != want {
		t.Errorf("got %+v, want %s", short, want)
	}
	var views []journeyView
	asJSON := meshplan(t, "", "trace", "--world", world, "-o", "json", "--answer", fromWorldsPod)
	if err := json.Unmarshal([]byte(asJSON.stdout), &views); err != nil {
		t.Fatalf("%v: %+v", err, asJSON)
	}
	if len(views) != 1 || len(views[0].Outcomes) != 5 || views[0].Outcomes[1].Namespace != "node" || views[0].Answer == nil {
		t.Errorf("%+v", views)
	}
}

// TestTraceOfWorldRefuses has files and packets that are wrong.
func TestTraceOfWorldRefuses(t *testing.T) {
	t.Parallel()
	const pod = `{"namespaces": [{"name": "pod", "links": [{"name": "eth0", "addresses": ["10.244.0.2/30"]}]`
	for name, c := range map[string]struct{ file, packet, want string }{
		"no namespace":        {pod + `}]}`, "tcp uid 0 gid 0 > 192.0.2.1:443", `write "pod: tcp uid 0 gid 0 > 192.0.2.1:443"`},
		"another namespace":   {pod + `}]}`, "node: tcp uid 0 gid 0 > 192.0.2.1:443", `the world has no namespace "node"`},
		"no packet":           {pod + `}]}`, "pod: tcp > 192.0.2.1:443", "want protocol, origin"},
		"an unknown field":    {pod + `, "forward": true}]}`, fromWorldsPod, `it describes no world: json: unknown field "forward"`},
		"two worlds":          {pod + `}]} {}`, fromWorldsPod, "there is more after the world"},
		"no world":            {`{}`, fromWorldsPod, "invalid world: it has no namespace"},
		"a wire of one":       {pod + `}], "wires": [["pod eth0"]]}`, fromWorldsPod, "wire 0 has 1 ends"},
		"a wire of no link":   {pod + `}], "wires": [["pod", "node"]]}`, fromWorldsPod, `"pod" is no link of a namespace`},
		"a listener":          {pod + `, "listeners": [{"name": "x", "protocol": "sctp", "port": 1}]}]}`, fromWorldsPod, `protocol "sctp" is neither tcp nor udp`},
		"a plan without file": {pod + `, "plans": ["none.json"]}]}`, fromWorldsPod, "none.json"},
		"no plan":             {pod + `, "plans": [{"owners": 1}]}]}`, fromWorldsPod, "plan 0"},
		"a plan of null":      {pod + `, "plans": [null]}]}`, fromWorldsPod, "plan 0: it is null"},
		"a setting":           {pod + `, "sysctls": {"ipv4/ip_forwards": 1}}]}`, fromWorldsPod, "no packet's way depends on it"},
	} {
		file := filepath.Join(t.TempDir(), "world.json")
		if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := meshplan(t, "", "trace", "--world", file, c.packet); got.code != exitTrouble || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	if got := meshplan(t, "", "trace", "--world", "testdata/none.json", fromWorldsPod); !strings.Contains(got.stderr, "none.json") {
		t.Errorf("no file: %+v", got)
	}
	if got := meshplan(t, "", "trace", "--answer", "testdata/cart-new.yaml", fromPod); !strings.Contains(got.stderr, "--answer goes with --world") {
		t.Errorf("--answer alone: %+v", got)
	}
}

// An answer that ignores a flag looks like one that heeds it.
func TestTraceOfWorldRefusesFlagsOfSources(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{
		"--owner=x-y", "--spare", "--pod=cart", "--anyway", "--listen=80", "--address=10.0.0.1", "--ipv4-only", "--dataplane=nftables",
	} {
		name, _, _ := strings.Cut(flag, "=")
		got := meshplan(t, "", "trace", "--world", "testdata/world.json", flag, fromWorldsPod)
		if got.code != exitTrouble || !strings.Contains(got.stderr, name+" goes with a SOURCE") {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}
