// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

const (
	toApplication = "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8443"
	fromPod       = "tcp uid 1000 gid 1000 > 192.0.2.1:443"
)

type result struct {
	code           int
	stdout, stderr string
}

func meshplan(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), environment{
		args: args, stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, version: "v1.2.3-test",
	})
	return result{code, stdout.String(), stderr.String()}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string
		stdin  string
		code   int
		stdout string
		stderr string
	}{
		"no command":     {stdout: "Exit codes: 0"},
		"help":           {args: []string{"trace", "--help"}, stdout: "why is port 8443 not captured?"},
		"version":        {args: []string{"--version"}, stdout: "meshplan v1.2.3-test"},
		"completion":     {args: []string{"completion", "bash"}, stdout: "bash completion"},
		"shells":         {args: []string{"completion"}, stdout: "Available Commands:\n  bash"},
		"unknown shell":  {args: []string{"completion", "foo"}, code: exitTrouble, stderr: `"foo" is not a shell that is known here; write one of bash, fish, powershell, zsh`},
		"forms complete": {args: []string{"__complete", "plan", "-o", ""}, stdout: "ip6tables"},

		"table":      {args: []string{"plan", "testdata/cart.yaml"}, stdout: "tcp dport 8443", stderr: "exludeOutboundPorts"},
		"text":       {args: []string{"plan", "testdata/cart.yaml", "-o", "text"}, stdout: `excludeInboundPorts="8443"`, stderr: "warning"},
		"nft":        {args: []string{"plan", "testdata/cart-new.yaml", "-o", "nft", "--owner", "my-mesh"}, stdout: "table inet my-mesh {"},
		"iptables":   {args: []string{"plan", "testdata/cart-new.yaml", "-o", "iptables"}, stdout: "-s 127.0.0.6/32"},
		"ip6tables":  {args: []string{"plan", "testdata/cart-new.yaml", "-o", "ip6tables"}, stdout: "-s ::6/128"},
		"mermaid":    {args: []string{"plan", "testdata/cart-new.yaml", "-o", "mermaid"}, stdout: `(["nat prerouting"])`},
		"spare":      {args: []string{"plan", "testdata/cart-new.yaml", "--spare"}, stdout: "inbound.spare"},
		"left alone": {args: []string{"plan", "testdata/plain.yaml"}, code: exitFindings, stderr: "no-proxy (istio-proxy); to plan it all the same, add --anyway"},
		"left alone, for programs": {
			args: []string{"plan", "testdata/plain.yaml", "-o", "json"}, code: exitFindings,
			stdout: "{\n  \"name\": \"Pod default/batch-0\",\n  \"leftAlone\": \"no-proxy (istio-proxy)\"\n}\n", stderr: "no-proxy",
		},
		"anyway": {args: []string{"plan", "testdata/plain.yaml", "--anyway"}, stdout: "inbound.capture"},

		"trace":  {args: []string{"trace", "testdata/cart-new.yaml", fromPod}, stdout: "delivered to proxy-15001"},
		"listen": {args: []string{"trace", "testdata/cart.yaml", "--listen", "80", toApplication}, stdout: "refused: nothing listens", stderr: "warning"},
		"address": {
			args:   []string{"trace", "testdata/cart-new.yaml", "--address", "10.9.0.1/24", "-o", "short", fromPod, fromPod},
			stdout: "delivered to proxy-15001 (proxy) at 127.0.0.1:15001, originally 192.0.2.1:443; outbound.capture",
		},
		"bare address": {
			args:   []string{"trace", "testdata/cart-new.yaml", "--address", "10.9.0.1,fd00:9::1", "-o", "short", "tcp in eth0 [2001:db8::9]:1 > [fd00:9::1]:80"},
			stdout: "delivered to proxy-15006",
		},

		"explain":        {args: []string{"explain", "testdata/cart-new.yaml", "tcp", "port", "8443", "in"}, stdout: "captured: redirect to :15006"},
		"explain JSON":   {args: []string{"explain", "testdata/cart-new.yaml", "in", "-o", "json"}, stdout: `"id": "inbound.capture"`},
		"explain alone":  {args: []string{"explain", "testdata/plain.yaml"}, code: exitFindings, stderr: "left alone"},
		"ranges in help": {args: []string{"explain", "--help"}, stdout: "a list of both (80,8440-8450)"},
		"port list":      {args: []string{"explain", "testdata/cart-new.yaml", "tcp", "port", "80,8440-8450", "in"}, stdout: "captured: redirect to :15006"},
		"port range":     {args: []string{"explain", "testdata/cart-new.yaml", "tcp", "port", "8440-8450", "in"}, stdout: "captured: redirect to :15006"},
		"unknown link":   {args: []string{"explain", "testdata/cart-new.yaml", "link", "eht0", "in"}, code: exitTrouble, stderr: `nothing arrives by link "eht0"`},
		"bad query":      {args: []string{"explain", "testdata/cart-new.yaml", "sideways"}, code: exitTrouble, stderr: "sideways"},

		"no dead rule":   {args: []string{"lint", "testdata/cart-new.yaml"}},
		"dead rule":      {args: []string{"lint", "testdata/dead.json"}, code: exitFindings, stdout: "admin (tcp dport 15000 -> accept) never matches"},
		"dead rule JSON": {args: []string{"lint", "testdata/dead.json", "-o", "json"}, code: exitFindings, stdout: `"kind": "dead rule"`},

		"equivalent":      {args: []string{"equivalent", "testdata/cart-new.yaml", "testdata/cart-new.yaml"}, stdout: "yes"},
		"not equivalent":  {args: []string{"equivalent", "testdata/cart-new.yaml", "testdata/cart.yaml"}, code: exitFindings, stdout: "no: tcp in eth0", stderr: "warning"},
		"equivalent JSON": {args: []string{"equivalent", "testdata/cart-new.yaml", "testdata/cart.yaml", "-o", "json"}, code: exitFindings, stdout: `"answer": "no"`, stderr: "warning"},

		"same":           {args: []string{"diff", "testdata/cart-new.yaml", "testdata/cart-new.yaml"}},
		"different":      {args: []string{"diff", "testdata/cart-new.yaml", "-"}, stdin: readFile(t, "cart.yaml"), code: exitFindings, stdout: "nat/inbound: changed inbound.exclude.ports", stderr: "warning"},
		"diff as JSON":   {args: []string{"diff", "testdata/cart-new.yaml", "testdata/cart-new.yaml", "-o", "json"}, stdout: "[]\n"},
		"diff of nobody": {args: []string{"diff", "testdata/cart-new.yaml", "testdata/plain.yaml"}, code: exitFindings, stderr: "left alone"},

		"unknown command":  {args: []string{"plann"}, code: exitTrouble, stderr: "unknown command \"plann\" for \"meshplan\"\n\nDid you mean this?\n\tplan\n\nRun \"meshplan --help\""},
		"unknown flag":     {args: []string{"plan", "--colour"}, code: exitTrouble, stderr: "unknown flag: --colour\nRun \"meshplan plan --help\""},
		"unknown form":     {args: []string{"plan", "-o", "xml"}, code: exitTrouble, stderr: "use one of table, text, json"},
		"no source":        {args: []string{"plan"}, code: exitTrouble, stderr: "accepts 1 arg(s), received 0\nRun \"meshplan plan --help\""},
		"no packet":        {args: []string{"trace", "testdata/cart.yaml"}, code: exitTrouble, stderr: "requires at least 2 arg(s), only received 1\nRun \"meshplan trace --help\""},
		"bad packet":       {args: []string{"trace", "testdata/cart.yaml", "tcp > x"}, code: exitTrouble, stderr: `packet "tcp > x"`},
		"bad port":         {args: []string{"trace", "testdata/cart.yaml", "--listen", "70000", fromPod}, code: exitTrouble, stderr: "--listen 70000 is not a port"},
		"bad address":      {args: []string{"trace", "testdata/cart.yaml", "--address", "10.0.0", fromPod}, code: exitTrouble, stderr: "--address 10.0.0 is not an address"},
		"impossible":       {args: []string{"trace", "testdata/cart-new.yaml", "tcp in eth9 192.0.2.9:1 > 10.244.0.2:8443"}, code: exitTrouble, stderr: "eth9"},
		"twice stdin":      {args: []string{"diff", "-", "-"}, code: exitTrouble, stderr: "the standard input can be read once only"},
		"no file":          {args: []string{"plan", "testdata/none.yaml"}, code: exitTrouble, stderr: "testdata/none.yaml"},
		"no YAML":          {args: []string{"plan", "-"}, stdin: "a: b: c", code: exitTrouble, stderr: "neither YAML nor JSON"},
		"neither":          {args: []string{"plan", "-"}, stdin: "a: b", code: exitTrouble, stderr: `line 1: neither a Kubernetes object (it has no "kind") nor a plan (it has no "owner")`},
		"a list":           {args: []string{"plan", "-"}, stdin: "[]", code: exitTrouble, stderr: "line 1: it is not a Kubernetes object, as kubectl prints one: it is a list"},
		"another kind":     {args: []string{"plan", "-"}, stdin: "kind: Deployment\napiVersion: apps/v1", code: exitTrouble, stderr: "it describes no pod and nothing that makes pods, only Deployment default/"},
		"bad annotation":   {args: []string{"plan", "-"}, stdin: strings.Replace(readFile(t, "cart.yaml"), "8443", "x", 1), code: exitTrouble, stderr: `excludeInboundPorts="x"`},
		"bad dataplane":    {args: []string{"plan", "netns:/nowhere", "--dataplane", "ipvs"}, code: exitTrouble, stderr: "use one of auto, nftables, iptables"},
		"bad owner":        {args: []string{"plan", "testdata/cart-new.yaml", "--owner", "mesh"}, code: exitTrouble, stderr: "invalid name"},
		"a large document": {args: []string{"plan", "-"}, stdin: strings.Repeat("# ", maxSource), code: exitTrouble, stderr: "more than 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := meshplan(t, test.stdin, test.args...)
			if got.code != test.code {
				t.Errorf("exit code %d, want %d", got.code, test.code)
			}
			if !strings.Contains(got.stdout, test.stdout) || test.stdout == "" && got.stdout != "" {
				t.Errorf("stdout:\n%s\nwant %q", got.stdout, test.stdout)
			}
			if !strings.Contains(got.stderr, test.stderr) || test.stderr == "" && got.stderr != "" && test.args[0] != "__complete" {
				t.Errorf("stderr:\n%s\nwant %q", got.stderr, test.stderr)
			}
		})
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The output of "plan -o json" is a source for all commands, and means the same plan.
func TestPlanAsJSONIsASource(t *testing.T) {
	t.Parallel()
	printed := meshplan(t, "", "plan", "testdata/cart-new.yaml", "-o", "json").stdout
	var plan interception.Plan
	if err := json.Unmarshal([]byte(printed), &plan); err != nil {
		t.Fatal(err)
	}
	if got := meshplan(t, printed, "diff", "testdata/cart-new.yaml", "-"); got.code != exitOK {
		t.Errorf("%+v", got)
	}
}

func TestTraceAsJSON(t *testing.T) {
	t.Parallel()
	got := meshplan(t, "", "trace", "testdata/cart-new.yaml", "-o", "json", toApplication, fromPod)
	var outcomes []outcomeView
	if err := json.Unmarshal([]byte(got.stdout), &outcomes); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if len(outcomes) != 2 {
		t.Fatalf("%d outcomes", len(outcomes))
	}
	first := outcomes[0]
	if first.Verdict != "delivered" || first.Listener != "proxy-15006" || first.Original != "10.244.0.2:8443" {
		t.Errorf("%+v", first)
	}
	if first.Decisive == nil || first.Decisive.Rule != "inbound.capture" || len(first.Decisive.From) == 0 || len(first.Path) != 2 {
		t.Errorf("%+v", first)
	}
}

func TestTraceWithThePodsAddresses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		packet string
		more   []string
		code   int
		want   string
	}{
		"to the pod":            {"tcp in eth0 192.0.2.9:40000 > 10.244.1.7:15020", nil, exitOK, "delivered to application at 10.244.1.7:15020"},
		"to its IPv6 address":   {"tcp in eth0 [2001:db8::9]:40000 > [fd00:1::7]:80", nil, exitOK, "delivered to proxy-15006"},
		"the proxy calls it":    {"tcp uid 1337 gid 1337 > 10.244.1.7:8443", nil, exitOK, "delivered to proxy-15006"},
		"to nobody":             {"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:80", nil, exitTrouble, "the pod has no address 10.244.0.2, eth0 has 10.244.1.7, fd00:1::7"},
		"with another address":  {"tcp in eth0 192.0.2.9:40000 > 10.9.9.9:80", []string{"--address", "10.9.9.9/24"}, exitOK, "delivered to proxy-15006"},
		"with another, to this": {"tcp in eth0 192.0.2.9:40000 > 10.244.1.7:80", []string{"--address", "10.9.9.9/24"}, exitTrouble, "the pod has no address 10.244.1.7"},
	} {
		args := append([]string{"trace", "-", "--pod", "orders-0", "-o", "short", test.packet}, test.more...)
		if got := meshplan(t, several, args...); got.code != test.code || !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}

// trace accepts the packet of an answer for the same pod.
func TestEquivalentWithThePodsAddresses(t *testing.T) {
	t.Parallel()
	pod := readFile(t, "cart.yaml") + "status:\n  podIPs: [{ip: 10.244.1.7}, {ip: \"fd00:10:244:1::7\"}]\n"
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sources := range [][]string{{file, "testdata/cart-new.yaml"}, {"testdata/cart-new.yaml", file}} {
		got := meshplan(t, "", append([]string{"equivalent"}, sources...)...)
		first, _, _ := strings.Cut(got.stdout, "\n")
		packet, differ := strings.CutPrefix(first, "no: ")
		if !differ || !strings.Contains(packet, "> 10.244.1.7:") {
			t.Errorf("got %+v, want a packet for 10.244.1.7", got)
		}
		if want := "warning: " + file + ": annotation "; !strings.HasPrefix(got.stderr, want) {
			t.Errorf("standard error is %q, want %q", got.stderr, want)
		}
		if traced := meshplan(t, "", "trace", file, packet); traced.code != exitOK {
			t.Errorf("trace of %q: %+v", packet, traced)
		}
	}
	if got := meshplan(t, "", "explain", file, "in", "-o", "json"); !strings.Contains(got.stdout, "> 10.244.1.7:") {
		t.Errorf("explain shows packets for another pod: %s", got.stdout)
	}
}

// The plans of several pods are not a source, and the error explains that.
func TestPlansOfSeveralPodsAreNoSource(t *testing.T) {
	t.Parallel()
	plans := meshplan(t, several, "plan", "-", "-o", "json").stdout
	if got := meshplan(t, plans, "plan", "-"); got.code != exitTrouble || !strings.HasSuffix(got.stderr, "as kubectl prints one: it is a list\n") {
		t.Errorf("%+v", got)
	}
}

func TestPlanAndAnotherDocument(t *testing.T) {
	t.Parallel()
	plan := meshplan(t, "", "plan", "testdata/cart-new.yaml", "-o", "json").stdout
	if got := meshplan(t, plan+"---\n"+several, "plan", "-"); got.code != exitTrouble || !strings.Contains(got.stderr, "give it alone") {
		t.Errorf("%+v", got)
	}
}

func TestExplainAsJSONSaysNothingTwice(t *testing.T) {
	t.Parallel()
	got := meshplan(t, "", "explain", "testdata/cart-new.yaml", "in", "tcp", "-o", "json")
	if strings.Contains(got.stdout, `"tcp, `) || !strings.Contains(got.stdout, `"tcp dport 15008"`) {
		t.Errorf("%s", got.stdout)
	}
}
