// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

const note = `{"owner": "istio-system/istio-cni-node", "version": "v1", "time": "2026-11-21T12:00:00Z"}`

// uninstall leaves word as the daemon does.
func (n *node) uninstall() string {
	n.t.Helper()
	path := filepath.Join(filepath.Dir(n.binary()), "istio-cni.uninstalled")
	if err := os.WriteFile(path, []byte(note), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func TestAnUninstalledPluginLetsEverythingPass(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.run(n.add()).mustSucceed(t)
	n.uninstall()
	if err := os.Remove(n.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	args := n.checked(`{"status_policy": "strict", "timeout": "wrong"}`)
	o := n.run(args)
	o.mustSucceed(t)
	if o.stdout != `{"cniVersion": "1.0.0"}` && o.stdout != `{"cniVersion":"1.0.0"}` {
		t.Errorf("got %s", o.stdout)
	}
	n.mustLog(o, "the plugin was uninstalled")
	n.mustLog(o, "by istio-system/istio-cni-node, 2026-11-21T12:00:00Z")
	n.mustPass("CHECK", args, "the plugin was uninstalled")
	n.mustPass("STATUS", args, "the plugin was uninstalled")
	n.call("DEL", args).mustBeSilent(t)
	if len(n.attachments()) > 0 {
		t.Error("DEL forgot nothing")
	}
}

// TestAnUninstalledPluginNeedsNoOptions: invalid options keep no pod from starting on a node that
// the mesh has left.
func TestAnUninstalledPluginNeedsNoOptions(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	o := options()
	o.Mesh.Owner, o.Paths.RunDir = "", "relative"
	for _, command := range []string{"ADD", "CHECK", "STATUS"} {
		n.runAs(t.Context(), o, command, n.checked()).mustFail(t, types.ErrInternal)
	}
	n.uninstall()
	for _, command := range []string{"ADD", "CHECK", "STATUS"} {
		came := n.runAs(t.Context(), o, command, n.checked())
		if came.code != 0 || (came.stdout != "") != (command == "ADD") {
			t.Errorf("%s: got %+v", command, came)
		}
		if !strings.Contains(came.stderr, "owner of the rules") || strings.Count(came.stderr, "the plugin was uninstalled, and lets everything pass") != 1 {
			t.Errorf("%s: got log %s", command, came.stderr)
		}
	}
	n.runAs(t.Context(), o, "GC", n.add()).mustFail(t, types.ErrInternal)
}

func TestANoteThatSomebodyElseCouldHaveLeft(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"others may write it": func(path string) error { return os.Chmod(path, 0o622) },
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
		"no note":         func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
		"no JSON":         func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"somebody else's": func(path string) error { return os.Chown(path, 1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			if err := change(n.uninstall()); err != nil {
				t.Fatal(err)
			}
			o := n.run(n.add())
			o.mustSucceed(t)
			n.mustLog(o, "is not trusted")
			if n.tables() == nil {
				t.Error("the pod was not captured")
			}
		})
	}
}
