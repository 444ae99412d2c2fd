// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// TestTraceOfNode prints how a connection of a meshed pod walks through the rules of a node that
// captures, to the node's proxy, with the rule and the reason at each step, and its answer.
func TestTraceOfNode(t *testing.T) {
	t.Parallel()
	proxy := ambient.NodeProxy{Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.6")}, Namespace: "proxy"}
	numbers, facts := ambient.BesideIstioNodeNumbers(), interception.Facts{}
	onNode, err := ambient.NodePlan(proxy, numbers, facts, "my-mesh")
	if err != nil {
		t.Fatal(err)
	}
	inProxy, err := ambient.ProxyPlan(proxy, numbers, facts, "my-mesh")
	if err != nil {
		t.Fatal(err)
	}
	world, err := json.Marshal(map[string]any{
		"namespaces": []map[string]any{
			{"name": "pod", "links": links("eth0", "10.244.0.2/30")},
			{
				"name": "node", "forwards": true, "plans": []*interception.Plan{onNode},
				"links":    links("eth0", "192.0.2.1/24", "veth1", "10.244.0.1/30", "veth2", "10.244.0.5/30"),
				"liveSets": []map[string]any{{"owner": "my-mesh", "name": ambient.MeshedSet(interception.IPv4), "members": []string{"10.244.0.2/32"}}},
			},
			{
				"name": "proxy", "plans": []*interception.Plan{inProxy},
				"links":     links("eth0", "10.244.0.6/30"),
				"listeners": []map[string]any{{"name": "proxy", "port": 15001, "proxy": true, "transparent": true}},
			},
		},
		"wires": [][]string{{"pod eth0", "node veth1"}, {"proxy eth0", "node veth2"}}, // the plans have more
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "world.json")
	if err := os.WriteFile(file, world, 0o600); err != nil {
		t.Fatal(err)
	}
	got := meshplan(t, "", "trace", "--world", file, "--answer", "pod: tcp uid 1000 gid 1000 > 198.51.100.7:443")
	if got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	const golden = "testdata/node-walk.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.stdout); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// links returns links by pairs of a name and an address.
func links(pairs ...string) (all []map[string]any) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, map[string]any{"name": pairs[i], "addresses": pairs[i+1 : i+2]})
	}
	return all
}
