// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pure returns the pure packages, from the file that make test-pure reads too.
func pure(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(".ci/pure")
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for line := range strings.Lines(string(text)) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			packages = append(packages, "./"+strings.TrimSpace(line))
		}
	}
	return packages
}

// rules returns the import rules of docs/architecture.md.
func rules(t *testing.T) []rule {
	t.Helper()
	return []rule{
		{
			why:  "pure packages are built from the standard library and each other",
			from: pure(t),
			only: append([]string{"std"}, pure(t)...),
		},
		{
			why:   "pure packages don't log, start programs or open connections",
			from:  pure(t),
			never: []string{"log", "net/http", "os/exec"},
		},
		{
			why:  "the core depends on nothing of ours",
			from: []string{"./interception"},
			only: []string{"std"},
		},
		{
			why:  "a planner needs the model alone",
			from: []string{"./interception/sidecar", "./ambient", "./ambient/collision"},
			only: []string{"std", "./interception"},
		},
		{
			why:  "the rules of other agents are recognised by the model and the numbers alone",
			from: []string{"./ambient/upstream"},
			only: []string{"std", "./interception", "./ambient"},
		},
		{
			why: "what plans are traced, proved, rendered, recorded, applied and repaired with serves every planner, and knows none",
			from: []string{
				"./interception/trace", "./interception/proof", "./interception/render", "./interception/lower", "./interception/journal",
				"./interception/dataplanetest/fake", "./interception/nftables", "./interception/iptables", "./interception/choice/...",
				"./repair/...",
			},
			never: []string{"./interception/sidecar"},
		},
		{
			why:   "the watch of a node's pods serves repair and ambient, and decides nothing about a pod",
			from:  []string{"./internal/nodepods"},
			never: []string{"./repair/...", "./ambient/...", "./interception/sidecar", "k8s.io/api/...", "k8s.io/client-go/kubernetes/..."},
		},
		{
			why:   "the finder of pods' namespaces serves repair and ambient, and knows neither Kubernetes nor what is captured",
			from:  []string{"./interception/podnetns"},
			never: []string{"k8s.io/...", "sigs.k8s.io/...", "./repair/...", "./ambient/...", "./interception/sidecar"},
		},
		{
			why:   "the agent of ambient mode serves any node's program: its dataplane and its feed come in through options",
			from:  []string{"./ambient/agent", "./ambient/agent/nodemode"},
			never: []string{"./interception/nftables", "./interception/iptables", "./interception/choice/...", "./repair/..."},
		},
		{
			why:  "the plugin links what asks the agent, and not the agent",
			from: []string{"./ambient/agent/event"},
			never: []string{
				"./ambient", "./ambient/agent", "./ambient/zds", "./interception/podnetns", "./interception/nftables", "./interception/iptables",
				"github.com/...", "k8s.io/...", "sigs.k8s.io/...",
			},
		},
		{
			why:   "both processes of a feed link it: it knows neither the agent nor what that works with",
			from:  []string{"./ambient/agent/feed"},
			never: []string{"./ambient/agent", "./ambient/zds", "./interception/nftables", "./interception/podnetns", "./interception/journal", "net/http"},
		},
		{
			why:   "what asks the API server for ambient mode's agent links no agent, and of Kubernetes' API only the metadata",
			from:  []string{"./ambient/controller"},
			never: []string{"./ambient/agent", "./ambient/zds", "./repair/...", "k8s.io/api/...", "k8s.io/client-go/kubernetes/..."},
		},
		{
			why:   "backends share their steps, and know each other as predecessors alone",
			from:  []string{"./interception/nftables", "./interception/iptables", "./internal/backend"},
			never: []string{"./interception/nftables", "./interception/iptables", "./interception/choice/..."},
		},
		{
			why:    "the library doesn't depend on its examples",
			from:   []string{"./..."},
			except: []string{"./examples/..."},
			never:  []string{"./examples/..."},
		},
		{
			why:    "Kubernetes types stay in controllers, internal/nodepods and examples",
			from:   []string{"./..."},
			except: []string{"./examples/...", "./internal/nodepods", "./.../controller/..."},
			never:  []string{"k8s.io/...", "sigs.k8s.io/..."},
		},
		{
			why:  "what installs a plugin knows nothing of its configuration, and leaves flags, metrics and logging to the program",
			from: []string{"./conflist/..."},
			never: []string{
				"./interception/...", "./repair/...", "log", "k8s.io/...", "sigs.k8s.io/...", "github.com/spf13/...", "github.com/prometheus/...",
			},
		},
		{
			why:    "only tests, the harnesses that importers use, and the demonstration need internal/testing",
			from:   []string{"./..."},
			except: []string{"./interception/dataplanetest/...", "./ambient/ambienttest/nodes", "./internal/testing/...", "./examples/demo"},
			never:  []string{"./internal/testing/..."},
		},
		{
			why:    "what only tests need isn't linked into products",
			from:   []string{"./..."},
			except: []string{"./interception/dataplanetest", "./ambient/ambienttest/nodes", "./internal/testing/..."},
			never:  []string{"testing", "github.com/google/go-cmp/...", "github.com/rogpeppe/go-internal/..."},
		},
		{
			why:  "the plugin is small, and starts once for each pod",
			from: []string{"./examples/istio-cni/...", "./examples/linkerd-cni/...", "./interception/plugin/..."},
			never: []string{
				"k8s.io/...", "sigs.k8s.io/...", "github.com/spf13/...", "github.com/prometheus/...", "go.uber.org/zap/...",
				"google.golang.org/protobuf/...", "github.com/gogo/protobuf/...",
			},
		},
		{
			why:   "the plugin serves any mesh, and what else comes in does so through its options",
			from:  []string{"./interception/plugin/..."},
			never: []string{"./ambient/...", "./interception/nftables", "./interception/iptables"},
		},
		{
			why:   "the daemon is small, and works while the API server is away: who needs that is a process of its own",
			from:  []string{"./examples/install-cni/..."},
			never: []string{"k8s.io/...", "sigs.k8s.io/..."},
		},
		{
			why:   "the types of Kubernetes' API and its clients take more memory than all pods of a node",
			from:  []string{"./examples/node-watcher/..."},
			never: []string{"k8s.io/api/...", "k8s.io/client-go/kubernetes/...", "k8s.io/client-go/informers/..."},
		},
	}
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	onEachTarget(t, func(t *testing.T, on target, packages []string) {
		t.Helper()
		g := list(t, on, packages...)
		for _, r := range rules(t) {
			if on.pureOnly && !slices.Equal(r.from, pure(t)) {
				continue
			}
			for _, violation := range r.violations(g) {
				t.Error(violation)
			}
		}
	})
}

// TestImportRulesCatch breaks each rule once, in a made-up module.
func TestImportRulesCatch(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for name, test := range map[string]struct {
		from, to string
		want     []string
	}{
		"third party in a pure package": {
			"./interception/trace", "example.com/x",
			[]string{"./interception/trace imports example.com/x: pure packages are built from the standard library and each other"},
		},
		"an effect in a pure package": {
			"./conflist", "os/exec",
			[]string{"./conflist imports os/exec: pure packages don't log, start programs or open connections"},
		},
		"a pure package in the core": {
			"./interception", "./kubeconfig",
			[]string{
				"./interception imports ./kubeconfig: the core depends on nothing of ours",
				"./ambient imports ./interception imports ./kubeconfig: a planner needs the model alone",
				"./interception/sidecar imports ./interception imports ./kubeconfig: a planner needs the model alone",
				"./ambient/upstream imports ./ambient imports ./interception imports ./kubeconfig: " +
					"the rules of other agents are recognised by the model and the numbers alone",
			},
		},
		"a witness in the planner": {
			"./interception/sidecar", "./interception/trace",
			[]string{"./interception/sidecar imports ./interception/trace: a planner needs the model alone"},
		},
		"one planner in the other": {
			"./ambient", "./interception/sidecar",
			[]string{
				"./ambient imports ./interception/sidecar: a planner needs the model alone",
				"./ambient/upstream imports ./ambient imports ./interception/sidecar: " +
					"the rules of other agents are recognised by the model and the numbers alone",
			},
		},
		"a witness in what recognises rules": {
			"./ambient/upstream", "./interception/trace",
			[]string{"./ambient/upstream imports ./interception/trace: the rules of other agents are recognised by the model and the numbers alone"},
		},
		"the planner below repair": {
			"./interception/podsource", "./interception/sidecar",
			[]string{
				"./repair/controller imports ./interception/podsource imports ./interception/sidecar: what plans are traced, proved, " +
					"rendered, recorded, applied and repaired with serves every planner, and knows none",
			},
		},
		"the planner in a dataplane": {
			"./interception/nftables", "./interception/sidecar",
			[]string{
				"./interception/nftables imports ./interception/sidecar: what plans are traced, proved, " +
					"rendered, recorded, applied and repaired with serves every planner, and knows none",
			},
		},
		"repair in the watch of the pods": {
			"./internal/nodepods", "./repair",
			[]string{
				"./internal/nodepods imports ./repair: the watch of a node's pods serves repair and ambient, and decides nothing about a pod",
			},
		},
		"repair in the finder": {
			"./interception/podnetns", "./repair",
			[]string{
				"./interception/podnetns imports ./repair: the finder of pods' namespaces serves repair and ambient, " +
					"and knows neither Kubernetes nor what is captured",
			},
		},
		"a dataplane in the agent": {
			"./ambient/agent", "./interception/nftables",
			[]string{
				"./ambient/agent imports ./interception/nftables: " +
					"the agent of ambient mode serves any node's program: its dataplane and its feed come in through options",
			},
		},
		"the agent in the plugin": {
			"./ambient/agent/event", "./ambient/agent",
			[]string{"./ambient/agent/event imports ./ambient/agent: the plugin links what asks the agent, and not the agent"},
		},
		"the agent in its feed": {
			"./ambient/agent/feed", "./ambient/agent",
			[]string{
				"./ambient/agent/feed imports ./ambient/agent: " +
					"both processes of a feed link it: it knows neither the agent nor what that works with",
			},
		},
		"the agent in its controller": {
			"./ambient/controller", "./ambient/agent",
			[]string{
				"./ambient/controller imports ./ambient/agent: " +
					"what asks the API server for ambient mode's agent links no agent, and of Kubernetes' API only the metadata",
			},
		},
		"an example in the library": {
			"./interception/dataplanetest", "./examples/demo/node",
			[]string{"./interception/dataplanetest imports ./examples/demo/node: the library doesn't depend on its examples"},
		},
		"Kubernetes in the library": {
			"./internal/netlink", "k8s.io/client-go/rest",
			[]string{
				"./interception/nftables imports ./internal/netlink imports k8s.io/client-go/rest: " +
					"Kubernetes types stay in controllers, internal/nodepods and examples",
				"./internal/netlink imports k8s.io/client-go/rest: Kubernetes types stay in controllers, internal/nodepods and examples",
				"./examples/istio-cni imports ./interception/nftables imports ./internal/netlink imports k8s.io/client-go/rest: " +
					"the plugin is small, and starts once for each pod",
			},
		},
		"a dataplane in the plugin's package": {
			"./interception/plugin", "./interception/iptables",
			[]string{
				"./interception/plugin imports ./interception/iptables: the plugin serves any mesh, and what else comes in does so through its options",
			},
		},
		"a backend that knows another": {
			"./interception/iptables", "./interception/nftables",
			[]string{
				"./interception/iptables imports ./interception/nftables: backends share their steps, and know each other as predecessors alone",
			},
		},
		"flags in the installer": {
			"./conflist/installer", "github.com/spf13/cobra",
			[]string{
				"./conflist/installer imports github.com/spf13/cobra: " +
					"what installs a plugin knows nothing of its configuration, and leaves flags, metrics and logging to the program",
			},
		},
		"Kubernetes in the daemon": {
			"./examples/install-cni", "k8s.io/client-go/tools/cache",
			[]string{
				"./examples/install-cni imports k8s.io/client-go/tools/cache: " +
					"the daemon is small, and works while the API server is away: who needs that is a process of its own",
			},
		},
		"a clientset in the informer's process": {
			"./examples/node-watcher", "k8s.io/client-go/kubernetes",
			[]string{
				"./examples/node-watcher imports k8s.io/client-go/kubernetes: " +
					"the types of Kubernetes' API and its clients take more memory than all pods of a node",
			},
		},
		"Kubernetes in a controller":          {"./repair/controller", "k8s.io/client-go/rest", nil},
		"Kubernetes in the watch of the pods": {"./internal/nodepods", "k8s.io/client-go/rest", nil},
		"testing in a product": {
			"./examples/demo/node", "testing",
			[]string{"./examples/demo/node imports testing: what only tests need isn't linked into products"},
		},
		"testing in what tests import": {"./interception/dataplanetest", "testing", nil},
		"the sandbox of tests in a product": {
			"./examples/istio-cni", "./internal/testing/sandbox",
			[]string{
				"./examples/istio-cni imports ./internal/testing/sandbox: " +
					"only tests, the harnesses that importers use, and the demonstration need internal/testing",
			},
		},
		"a flag library in the plugin": {
			"./examples/istio-cni", "github.com/spf13/cobra",
			[]string{"./examples/istio-cni imports github.com/spf13/cobra: the plugin is small, and starts once for each pod"},
		},
	} {
		g := madeUp(t)
		g.add(test.from, test.to)
		var got []string
		for _, r := range rules(t) {
			violations := r.violations(g)
			caught[r.why] = caught[r.why] || len(violations) > 0
			got = append(got, violations...)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, r := range rules(t) {
		if !caught[r.why] {
			t.Errorf("no case here breaks the rule: %s", r.why)
		}
	}
}

// TestImportRulesNameThePackages fails if a rule names a package that no longer exists, for example
// after a rename.
func TestImportRulesNameThePackages(t *testing.T) {
	t.Parallel()
	g := madeUp(t)
	delete(g, "./kubeconfig")
	got := rule{why: "reasons", from: []string{"./interception", "./kubeconfig"}}.violations(g)
	if diff := cmp.Diff([]string{"no package is ./kubeconfig: reasons"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// madeUp returns the graph of a module that keeps all rules.
func madeUp(t *testing.T) graph {
	t.Helper()
	g := graph{}
	for _, name := range pure(t) {
		g.add(name, "strings")
	}
	g.add("./interception/trace", "./interception")
	g.add("./interception/nftables", "./interception")
	g.add("./interception/nftables", "./internal/netlink")
	g.add("./internal/backend", "./interception")
	g.add("./interception/dataplanetest", "./interception")
	g.add("./interception/plugin", "./interception/journal")
	g.add("./examples/istio-cni", "./interception/nftables")
	g.add("./examples/linkerd-cni", "./interception/plugin")
	g.add("./examples/demo/node", "github.com/spf13/cobra")
	g.add("./examples/install-cni", "./conflist")
	g.add("./examples/node-watcher", "k8s.io/client-go/rest")
	g.add("./repair/controller", "net/http")
	g.add("./internal/nodepods", "k8s.io/client-go/tools/cache")
	g.add("./repair/controller", "./interception/podsource")
	g.add("./interception/sidecar", "./interception")
	g.add("./ambient", "./interception")
	g.add("./ambient/agent", "./ambient")
	g.add("./ambient/agent/nodemode", "./ambient")
	g.add("./ambient/upstream", "./ambient")
	g.add("./ambient/agent/event", "./interception")
	g.add("./ambient/agent/feed", "./ambient")
	g.add("./ambient/controller", "./ambient")
	for _, name := range []string{"./interception/journal", "./interception/podnetns", "./interception/iptables", "./interception/choice"} {
		g.add(name, "./interception")
	}
	return g
}

// pluginLinks are the packages in a plugin's binary besides its main: this module's, other
// modules', and those of the standard library that these import directly.
const pluginLinks = `
	./interception ./interception/choice ./interception/journal ./interception/netfacts ./interception/nftables ./interception/plugin
	./interception/plugin/exhaustion ./interception/plugin/pluginconf ./interception/podsource ./interception/podsource/internal/protocol ./interception/lower ./interception/sidecar ./internal/filesystem
	./internal/backend ./internal/kernel ./internal/namespace ./internal/nfnetlink ./internal/route ./internal/spool ./internal/unixsocket
	./internal/version ./kubeconfig

	github.com/containernetworking/cni/pkg/ns github.com/containernetworking/cni/pkg/skel
	github.com/containernetworking/cni/pkg/types github.com/containernetworking/cni/pkg/types/020
	github.com/containernetworking/cni/pkg/types/040 github.com/containernetworking/cni/pkg/types/100
	github.com/containernetworking/cni/pkg/types/create github.com/containernetworking/cni/pkg/types/internal
	github.com/containernetworking/cni/pkg/utils github.com/containernetworking/cni/pkg/version
	github.com/hashicorp/errwrap github.com/hashicorp/go-multierror
	github.com/mdlayher/netlink github.com/mdlayher/netlink/nlenc github.com/mdlayher/socket
	github.com/vishvananda/netlink github.com/vishvananda/netlink/nl github.com/vishvananda/netns
	golang.org/x/net/bpf golang.org/x/sync/errgroup golang.org/x/sys/unix

	bufio bytes cmp context crypto/sha256 crypto/tls crypto/x509 encoding encoding/base64 encoding/binary encoding/hex
	encoding/json encoding/pem errors fmt hash/fnv io io/fs io/ioutil iter log log/slog maps math math/bits math/rand math/rand/v2 net
	net/http net/netip net/url os os/exec os/signal path path/filepath reflect regexp runtime runtime/debug slices sort strconv strings sync
	sync/atomic syscall time unicode unicode/utf8 unsafe
`

// pluginAmbientLinks are the additional packages of a plugin with ambient mode.
const pluginAmbientLinks = `
	./ambient ./ambient/agent/event ./examples/internal/ambientconf ./examples/internal/ambientplugin
`

// pluginIPTablesLinks are the additional packages of the build with iptables.
const pluginIPTablesLinks = `
	./interception/choice/standard ./interception/iptables ./interception/render ./internal/ipset text/tabwriter
`

// TestImportRulesOfThePlugin compares the plugin's packages with the list. Each pod of a node waits
// until the binary is read from disk and all its packages are initialised.
func TestImportRulesOfThePlugin(t *testing.T) {
	t.Parallel()
	for _, build := range []struct{ program, tags, links string }{
		{"./examples/istio-cni", "", pluginLinks + pluginAmbientLinks},
		{"./examples/istio-cni", "iptables", pluginLinks + pluginAmbientLinks + pluginIPTablesLinks},
		{"./examples/linkerd-cni", "", pluginLinks},
	} {
		g := list(t, target{os: "linux", arch: "amd64"}, "-tags="+build.tags, build.program)
		if problems := g.unlike(build.program, append(strings.Fields(build.links), build.program)); problems != nil {
			t.Errorf("%s, tags %q:\n%s", build.program, build.tags, strings.Join(problems, "\n"))
		}
	}
}

func TestImportRulesOfThePluginCatch(t *testing.T) {
	t.Parallel()
	g := madeUp(t)
	g.add("./interception/nftables", "example.com/x")
	g.add("example.com/x", "os/exec")
	got := g.unlike("./examples/istio-cni", []string{
		"./examples/istio-cni", "./interception/nftables", "./interception", "./internal/gone", "strings",
	})
	const why = ": each pod's start waits for all that the plugin is made of: " +
		"measure it (make bench), and add it to pluginLinks if it is worth that"
	want := []string{
		"./examples/istio-cni imports ./interception/nftables imports ./internal/netlink" + why,
		"./examples/istio-cni imports ./interception/nftables imports example.com/x imports os/exec" + why,
		"./examples/istio-cni imports ./interception/nftables imports example.com/x" + why,
		"./internal/gone is not linked any more: take it out of pluginLinks",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestProgramsExplain finds programs that write routes and do not turn on the kernel's error
// explanations, which takes a call at the beginning of main. meshplan only reads.
func TestProgramsExplain(t *testing.T) {
	t.Parallel()
	mains, err := filepath.Glob("examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	isRoute := func(_ graph, name string) bool { return name == "./internal/route" }
	g, asked := list(t, target{os: "linux", arch: "amd64"}, "./examples/..."), 0
	for _, main := range mains {
		program := "./" + filepath.ToSlash(filepath.Dir(main))
		if program == "./examples/meshplan" || len(g.chains(program, isRoute)) == 0 {
			continue
		}
		source, err := os.ReadFile(main)
		if err != nil {
			t.Fatal(err)
		}
		asked++
		if !strings.Contains(string(source), "kernel.Explain()") && !strings.Contains(string(source), "plugin.Main(") {
			t.Errorf("%s writes routes: call kernel.Explain first in main, or leave main to plugin.Main", program)
		}
	}
	if asked < 3 {
		t.Errorf("%d of %d programs write routes: the search looks in the wrong place", asked, len(mains))
	}
}
