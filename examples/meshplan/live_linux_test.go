// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// applied makes a namespace with the rules of testdata/cart-new.yaml, and returns its path.
func applied(t *testing.T, dataplane interception.Dataplane, err error) string {
	t.Helper()
	path := newNamespace(t).Path()
	apply(t, dataplane, err, "testdata/cart-new.yaml", path)
	return path
}

func newNamespace(t *testing.T) *sandbox.Namespace {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	return namespace
}

// apply puts a pod's rules into the namespace at a path. The error is that of making the dataplane.
func apply(t *testing.T, dataplane interception.Dataplane, err error, pod, path string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var plan interception.Plan
	if err := json.Unmarshal([]byte(meshplan(t, "", "plan", pod, "-o", "json").stdout), &plan); err != nil {
		t.Fatal(err)
	}
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := dataplane.Apply(t.Context(), ns, &plan); err != nil {
		t.Fatal(err)
	}
}

func TestLiveNamespace(t *testing.T) {
	t.Parallel()
	nft, err := nftables.New(nftables.Options{})
	nftPath := applied(t, nft, err)
	tables, err := iptables.New(iptables.Options{Flavour: iptables.NFT})
	for dataplane, path := range map[string]string{"nftables": nftPath, "iptables": applied(t, tables, err)} {
		live := "netns:" + path
		for _, test := range []struct {
			args   []string
			code   int
			stdout string
		}{
			{[]string{"plan", live}, exitOK, "inbound.exclude.ports"},
			{[]string{"diff", "testdata/cart-new.yaml", live}, exitOK, ""},
			{[]string{"diff", "testdata/cart-new.yaml", live, "--dataplane", dataplane}, exitOK, ""},
			{[]string{"equivalent", "testdata/cart-new.yaml", live}, exitOK, "yes"},
			{[]string{"diff", "testdata/cart.yaml", live}, exitFindings, "nat/inbound: changed inbound.exclude.ports"},
			{[]string{"equivalent", "testdata/cart.yaml", live}, exitFindings, "no: tcp in eth0"},
			{[]string{"explain", live, "tcp", "port", "9000", "in"}, exitOK, "left alone"},
			{[]string{"lint", live}, exitOK, ""},
			{[]string{"trace", live, "-o", "short", fromPod}, exitOK, "delivered to proxy-15001"},
			{[]string{"diff", "testdata/cart-new.yaml", live, "--owner", "other-mesh"}, exitFindings, "missing"},
		} {
			got := meshplan(t, "", test.args...)
			if got.code != test.code || !strings.Contains(got.stdout, test.stdout) || test.stdout == "" && got.stdout != "" {
				t.Errorf("%s: meshplan %s: exit code %d, want %d and %q\n%s%s",
					dataplane, strings.Join(test.args, " "), got.code, test.code, test.stdout, got.stdout, got.stderr)
			}
		}
	}
}

func TestLiveNamespaceWithRulesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	nft, err := nftables.New(nftables.Options{})
	path := applied(t, nft, err)
	script := exec.Command("nsenter", "--net="+path, "nft", "-f", "-")
	script.Stdin = strings.NewReader(`table inet thief {
		chain out { type nat hook output priority -110; tcp dport 443 redirect to :9999; }
	}`)
	if output, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	got := meshplan(t, "", "diff", "testdata/cart-new.yaml", "netns:"+path)
	if got.code != exitFindings || !strings.Contains(got.stdout, "thief") {
		t.Errorf("%+v", got)
	}
	got = meshplan(t, "", "trace", "netns:"+path, "-o", "short", fromPod)
	if got.code != exitOK || !strings.Contains(got.stderr, "inet thief/out (hook output, priority -110) is somebody else's") {
		t.Errorf("trace says nothing of others: %+v", got)
	}
}

func TestLiveNamespaceFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ source, want string }{
		"none":        {"netns:/nowhere", "no such file"},
		"a file":      {"netns:testdata/cart.yaml", "not a network namespace"},
		"no number":   {"pid:cart", `"cart" is no process id`},
		"no process":  {"pid:4194305", "no such file"},
		"own process": {"pid:1", "namespace is the host's"},
	} {
		got := meshplan(t, "", "plan", test.source)
		if got.code != exitTrouble || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}
