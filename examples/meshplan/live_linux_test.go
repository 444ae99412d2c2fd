// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
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

// apply applies a pod's rules to the namespace at a path. err is the error of making the dataplane.
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
	if got.code != exitOK || !strings.Contains(got.stderr, "inet thief/out (hook output, priority -110) belongs to another program") {
		t.Errorf("trace says nothing of others: %+v", got)
	}
}

// A namespace without rules of the owner has no hook that other programs could share.
func TestTraceWarnsOfOthersRulesAlone(t *testing.T) {
	t.Parallel()
	path := newNamespace(t).Path()
	script := exec.Command("nsenter", "--net="+path, "nft", "-f", "-")
	script.Stdin = strings.NewReader(`table inet consul_tproxy {
		chain x { type nat hook output priority -100; tcp dport 80 redirect to :15001; }
		chain idle { type filter hook input priority 0; }
		chain closed { type filter hook forward priority 0; policy drop; }
		chain called { accept; }
	}`)
	if output, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	got := meshplan(t, "", "trace", "netns:"+path, "-o", "short", "tcp uid 1 gid 1 > 10.0.0.1:80")
	const want = "warning: inet consul_tproxy/closed (hook forward, priority 0) belongs to another program, may change this, and is not walked: ask explain\n" +
		"warning: inet consul_tproxy/x (hook output, priority -100) belongs to another program, may change this, and is not walked: ask explain\n"
	lines := strings.SplitAfter(got.stderr, "\n")
	slices.Sort(lines)
	if sorted := strings.Join(lines, ""); sorted != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", sorted, want)
	}
}

func TestLiveNamespaceWithOthersRulesOnly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		program, rules string
		want           []string
	}{
		"nft": {"nft -f -", "table inet strange {\n chain out { type nat hook output priority -110; tcp dport 443 redirect to :9999; }\n}", []string{
			"there are no rules of istio-cni, but there are others:", "table inet strange: chains out", "name it with --owner",
		}},
		"iptables": {"iptables-nft-restore", "*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -p tcp -j ISTIO_OUTPUT\n-A ISTIO_OUTPUT -j ACCEPT\nCOMMIT\n", []string{
			"ISTIO_OUTPUT",
		}},
		"in no chain of their own": {"iptables-legacy-restore", "*nat\n-A OUTPUT -p tcp -j REDIRECT --to-ports 4140\nCOMMIT\n", []string{
			"there are no rules of istio-cni, but there are others:\n  table legacy ip nat: chains OUTPUT\nIf another owner's plan is meant, name it with --owner; " +
				"nft list ruleset and iptables-save print the rules.\n",
		}},
		"legacy": {"iptables-legacy-restore", "*nat\n:PROXY_INIT_OUTPUT - [0:0]\n-A OUTPUT -j PROXY_INIT_OUTPUT\n-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-ports 4140\nCOMMIT\n", []string{
			"PROXY_INIT_OUTPUT",
		}},
	} {
		path := newNamespace(t).Path()
		script := exec.Command("nsenter", append([]string{"--net=" + path}, strings.Fields(test.program)...)...)
		script.Stdin = strings.NewReader(test.rules)
		script.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
		if output, err := script.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, output)
		}
		got := meshplan(t, "", "plan", "netns:"+path)
		for _, want := range test.want {
			if got.code != exitFindings || !strings.Contains(got.stderr, want) {
				t.Errorf("%s: %+v, want %q", name, got, want)
			}
		}
	}
	if got := meshplan(t, "", "plan", "netns:"+newNamespace(t).Path()); got.code != exitOK || got.stderr != "" {
		t.Errorf("an empty namespace: %+v", got)
	}
}

func TestLiveNamespaceHasItsOwnAddresses(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	nft, err := nftables.New(nftables.Options{})
	apply(t, nft, err, "testdata/cart-new.yaml", namespace.Path())
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "eth0"
	veth, network := &netlink.Veth{LinkAttrs: attributes, PeerName: "eth1"}, netip.MustParsePrefix("10.9.9.9/24")
	if err := namespace.Netlink().LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: network.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}
	if err := namespace.Netlink().AddrAdd(veth, address); err != nil {
		t.Fatal(err)
	}
	got := meshplan(t, "", "trace", "netns:"+namespace.Path(), "-o", "short", "tcp in eth0 192.0.2.9:40000 > 10.9.9.9:80")
	if got.code != exitOK || !strings.Contains(got.stdout, "delivered to proxy-15006") {
		t.Errorf("%+v", got)
	}
}

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{
		{"plan", "testdata/cart-new.yaml"},
		{"plan", "testdata/cart-new.yaml", "-o", "json"},
		{"trace", "testdata/cart-new.yaml", fromPod},
		{"explain", "testdata/cart-new.yaml"},
		{"lint", "testdata/dead.json"},
		{"diff", "testdata/cart-new.yaml", "testdata/cart.yaml"},
		{"equivalent", "testdata/cart-new.yaml", "testdata/cart-new.yaml"},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), environment{args: args, stdin: strings.NewReader(""), stdout: full, stderr: &stderr})
		if code != exitTrouble || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("meshplan %s: exit code %d, %s", strings.Join(args, " "), code, &stderr)
		}
	}
}

func TestLiveNamespaceFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ source, want string }{
		"none":        {"netns:/nowhere", "no such file"},
		"a file":      {"netns:testdata/cart.yaml", "not a network namespace"},
		"no number":   {"pid:cart", `"cart" is not a process id`},
		"no process":  {"pid:4194305", "no such file"},
		"own process": {"pid:1", "namespace is the host's"},
	} {
		got := meshplan(t, "", "plan", test.source)
		if got.code != exitTrouble || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}
