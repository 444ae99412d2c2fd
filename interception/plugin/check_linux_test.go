// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/spool"
)

// checked are the arguments of a CHECK.
func (n *node) checked(settings ...string) *skel.CmdArgs {
	n.t.Helper()
	return n.add(append([]string{`{"prevResult": {"cniVersion": "1.0.0"}}`}, settings...)...)
}

// nft edits the pod's rules as another program would.
func (n *node) nft(command string) {
	n.t.Helper()
	err := n.netns.Do(func() error {
		output, err := exec.Command("nft", command).CombinedOutput()
		return errors.Join(err, asError(output))
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func asError(output []byte) error {
	if len(output) == 0 {
		return nil
	}
	return errors.New(string(output))
}

// files are all files in the run directory, with their content, except the log.
func (n *node) files() map[string]string {
	n.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(n.runDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path == n.netns.Path() || path == spool.PluginLog(n.runDir, pluginName).Path {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return files
}

func TestCHECKReportsWhatDiffersFromTheRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit    string
		message string
		details string
	}{
		"nothing": {},
		"a chain is empty": {
			"flush chain inet istio-cni nat-output", "differences; the first: nat/output: missing ", "; nat/output: missing ",
		},
		"a rule too many": {
			"insert rule inet istio-cni nat-output ip daddr 192.0.2.1 return", "1 difference: nat/output: extra",
			"another program changed the rules in the pod's network namespace; create the pod again, or find out which program did: nat/output: extra",
		},
		"everything has gone": {"delete table inet istio-cni", "differences; the first: nat hook ", "; nat hook output: missing "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			n.run(n.add()).mustSucceed(t)
			before := n.files()
			if test.edit != "" {
				n.nft(test.edit)
			}
			o := n.call("CHECK", n.checked())
			if len(before) != len(n.files()) || before[n.kubeconfig()] != n.files()[n.kubeconfig()] {
				t.Errorf("CHECK wrote: %v, %v", before, n.files())
			}
			if test.message == "" {
				if o.code != 0 || o.stdout != "" {
					t.Errorf("got %+v", o)
				}
				return
			}
			e := o.mustFail(t, codeDrift)
			if !strings.Contains(e.Msg, test.message) || !strings.Contains(e.Details, test.details) {
				t.Errorf("got %q and %q", e.Msg, e.Details)
			}
			if again := n.call("CHECK", n.checked()); again.stdout != o.stdout {
				t.Errorf("CHECK mended it: %s", again.stdout)
			}
		})
	}
}

// What a pod asks for since its start is told apart: a user who may edit a pod must not be able to
// have its rules called wrong, or right.
func TestCHECKTellsOfAnnotationsThatChanged(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	a := agentOf(t)
	n.serve(a)
	n.run(n.add()).mustSucceed(t)
	n.mustPass("CHECK", n.checked(), "")

	a.set(agentOf(t, `15020,15090,15021`, `15020,15090,15021,8080`).pod)
	n.mustPass("CHECK", n.checked(), `"level":"WARN"`, "has asked for something else since")

	a.set(agentOf(t, `"name": "istio-proxy"`, `"name": "proxy"`).pod)
	n.mustPass("CHECK", n.checked(), `"level":"WARN"`, "would be left alone now", "no-proxy")

	a.set(interception.Pod{})
	n.server.Close()
	n.mustPass("CHECK", n.checked(`{"timeout": "1s"}`), "what the pod asks for now is unknown")
}

// TestCHECKAfterARepair finds nothing amiss about a plan that spares the connections that were
// there before.
func TestCHECKAfterARepair(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.run(n.add()).mustSucceed(t)
	record, err := n.journal().Read(web)
	if err != nil {
		t.Fatal(err)
	}
	record.Plan = record.Plan.Sparing()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ns, err := interception.OpenNetns(n.netns.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	if err := errors.Join(dataplane.Apply(t.Context(), ns, record.Plan), n.journal().Write(record)); err != nil {
		t.Fatal(err)
	}
	if o := n.call("CHECK", n.checked()); o.code != 0 || o.stdout != "" || strings.Contains(o.stderr, "has asked for something else") {
		t.Errorf("got %+v", o)
	}
}

func TestCHECKTellsOfAnotherPlanner(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.run(n.add()).mustSucceed(t)
	record, err := n.journal().Read(web)
	if err != nil {
		t.Fatal(err)
	}
	record.Planner = "v0.0.1"
	if err := n.journal().Write(record); err != nil {
		t.Fatal(err)
	}
	calls := n.calls.Load()
	n.mustPass("CHECK", n.checked(), `"then":"v0.0.1"`)
	if n.calls.Load() != calls {
		t.Error("the API server was asked for nothing")
	}
}

func TestCHECKWithoutARecordGoesByThePod(t *testing.T) {
	t.Parallel()
	t.Run("same", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, pod(t))
		n.run(n.add()).mustSucceed(t)
		if err := n.journal().Remove(web); err != nil {
			t.Fatal(err)
		}
		n.mustPass("CHECK", n.checked(), "there is no record")
	})
	t.Run("damaged", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, pod(t))
		n.run(n.add()).mustSucceed(t)
		path := filepath.Join(n.journal().Directory, "k8s-pod-network@abc@eth0.json")
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.mustPass("CHECK", n.checked(), "cannot be read", "there is no record")
	})
	t.Run("nothing there", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, pod(t))
		n.call("CHECK", n.checked()).mustFail(t, codeDrift)
	})
	t.Run("nobody knows the pod", func(t *testing.T) {
		t.Parallel()
		n := newNode(t, answer(http.StatusForbidden, ""))
		n.call("CHECK", n.checked()).mustFail(t, codeForbidden)
		n.mustPass("CHECK", n.checked(`{"fail_policy": {"default": "open"}}`), "no source knows it, and fail_policy is open")
		n.call("CHECK", n.checked(`{"fail_policy": {"default": "open", "closed": ["shop"]}}`)).mustFail(t, codeForbidden)
	})
}

func TestCHECKOfPodsThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t, `"name": "istio-proxy"`, `"name": "proxy"`))
	n.mustPass("CHECK", n.checked(), "no-proxy")
	args := n.checked()
	args.Args = "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns"
	n.mustPass("CHECK", args, "excluded-namespace")
	n.mustPass("CHECK", n.checked(`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {}}}`), "not-injected")
}

// A plugin that adds nothing to prevResult can only check that what it names is there.
func TestCHECKLooksAtPrevResult(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.run(n.add()).mustSucceed(t)
	result := func(name, sandbox string) string {
		data, err := json.Marshal(map[string]any{"prevResult": map[string]any{
			"cniVersion": "1.0.0", "interfaces": []any{map[string]string{"name": name, "sandbox": sandbox}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	n.mustPass("CHECK", n.checked(result("lo", n.netns.Path())), "")
	n.mustPass("CHECK", n.checked(result("veth9", "")), "")
	e := n.call("CHECK", n.checked(result("eth9", n.netns.Path()))).mustFail(t, codeResult)
	if !strings.Contains(e.Msg, "interface eth9 of prevResult") {
		t.Errorf("got %q", e.Msg)
	}
	n.call("CHECK", n.checked(`{"prevResult": null}`)).mustFail(t, types.ErrInvalidNetworkConfig)
	n.call("CHECK", n.checked(`{"prevResult": 1}`)).mustFail(t, types.ErrDecodingFailure)
}

func TestCHECKTellsOfRulesOfOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.run(n.add()).mustSucceed(t)
	n.nft("table ip thief { chain out { type nat hook output priority -150; tcp dport 80 redirect to :9; }; }")
	n.mustPass("CHECK", n.checked(), `"level":"WARN"`, "other programs have rules", "thief")
}

func TestCHECKThatCannotRead(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.run(n.add()).mustSucceed(t)
	o := n.runIn(t.Context(), "CHECK", n.checked(), single(func() (interception.Dataplane, error) { return failing{errors.New("no")}, nil }))
	o.mustFail(t, codeObserve)
	args := n.checked()
	args.Netns = filepath.Join(n.runDir, "gone")
	n.call("CHECK", args).mustFail(t, codeNetnsMissing)
}

// mustPass wants a command to succeed in silence, and its log to have the texts.
func (n *node) mustPass(command string, args *skel.CmdArgs, texts ...string) {
	n.t.Helper()
	o := n.call(command, args)
	if o.code != 0 || o.stdout != "" {
		n.t.Fatalf("got %+v", o)
	}
	for _, text := range texts {
		n.mustLog(o, text)
	}
}
