// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// TestPodWithUsersOfItsOwn has a runtime start a pod with hostUsers: false, whose network namespace
// belongs to another user namespace than the plugin's, with each dataplane.
func TestPodWithUsersOfItsOwn(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		pluginconf.Auto: pluginconf.NFTables, pluginconf.NFTables: pluginconf.NFTables, pluginconf.IPTables: pluginconf.IPTables,
	} {
		for mode, edits := range map[string][]string{"REDIRECT": nil, "TPROXY": {`"REDIRECT"`, `"TPROXY"`}} {
			t.Run(setting+"/"+mode, func(t *testing.T) {
				t.Parallel()
				n := newNodeWithNetns(t, pod(t, edits...), sandbox.NewNamespaceOfUsers)
				if err := os.Symlink(pluginWithIPTables(t), n.binary()); err != nil {
					t.Fatal(err)
				}
				list := n.chain("1.0.0", dataplaneSetting(setting))
				cni := libcni.NewCNIConfigWithCacheDir([]string{n.runDir}, t.TempDir(), quiet())
				runtime := &libcni.RuntimeConf{ContainerID: "abc", NetNS: n.netns.Path(), IfName: "eth0", Args: [][2]string{
					{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", uid},
				}}
				for range 2 {
					if _, err := cni.AddNetworkList(t.Context(), list, runtime); err != nil {
						t.Fatal(err)
					}
					if err := cni.CheckNetworkList(t.Context(), list, runtime); err != nil {
						t.Error(err)
					}
				}
				if got := n.recorded(); got != want {
					t.Errorf("the record has dataplane %q, want %q", got, want)
				}
				if want == pluginconf.IPTables {
					n.mustObserve(iptables.New(iptables.Options{}))
				}
				if owned := slices.Contains(n.tables(), pluginName); owned != (want == pluginconf.NFTables) {
					t.Errorf("got tables %v", n.tables())
				}
				if err := cni.DelNetworkList(t.Context(), list, runtime); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestPodWithUsersOfItsOwnNeedsNsenter has a node without the program: the error names the package
// that has it, and pods without users of their own do without.
func TestPodWithUsersOfItsOwnNeedsNsenter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		users, hidden, program, packaged string
	}{
		{"own", "nsenter", "program nsenter", "util-linux"},
		{"host's", "ip*tables-*", "program iptables-legacy-restore", "iptables"},
		{"host's", "nsenter", "", ""},
	} {
		t.Run(test.users+" users without "+test.hidden, func(t *testing.T) {
			t.Parallel()
			newNetns := sandbox.NewNamespace
			if test.users == "own" {
				newNetns = sandbox.NewNamespaceOfUsers
			}
			n := newNodeWithNetns(t, pod(t), newNetns)
			n.build = n.without(pluginWithIPTables(t), test.hidden)
			o := n.exec("ADD", n.add(dataplaneSetting(pluginconf.IPTables)))
			if test.program == "" {
				o.mustSucceed(t)
				return
			}
			e := o.mustFail(t, codeUnsupported)
			if !strings.Contains(e.Msg, test.program) || strings.Contains(e.Msg, "Options.") || !strings.Contains(e.Msg, "install "+test.packaged) ||
				!strings.Contains(e.Details, "package") {
				t.Errorf("got %s\nwith details %s", e.Msg, e.Details)
			}
			n.mustHold(false)
		})
	}
}

// without is a script that starts a plugin on a node that lacks some programs.
func (n *node) without(plugin, pattern string) string {
	n.t.Helper()
	path := filepath.Join(n.runDir, "without")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare --mount sh -c 'for d in %s; do for f in $d/%s; do\n"+
		"if [ -e $f ]; then mount --bind /dev/null $f || exit 1; fi; done; done; exec %s'\n",
		"/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin", pattern, plugin)
	syscall.ForkLock.RLock() // see chain
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		n.t.Fatal(err)
	}
	return path
}
