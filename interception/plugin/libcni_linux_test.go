// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/meshcni/meshcni/interception/journal"
)

// TestLibcni drives the plugin as container runtimes do, after a plugin that makes the result, for
// every version.
func TestLibcni(t *testing.T) {
	t.Parallel()
	for _, v := range cniversion.All.SupportedVersions() {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			list := n.chain(v)
			cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(plugin(t)), n.runDir}, t.TempDir(), quiet())
			runtime := &libcni.RuntimeConf{ContainerID: "abc", NetNS: n.netns.Path(), IfName: "eth0", Args: [][2]string{
				{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", uid},
			}}
			if _, err := cni.ValidateNetworkList(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				result, err := cni.AddNetworkList(t.Context(), list, runtime)
				if err != nil {
					t.Fatal(err)
				}
				wantResult(t, result, v)
				if tables := n.tables(); !slices.Equal(tables, []string{"istio-cni"}) {
					t.Errorf("got tables %v", tables)
				}
			}
			for range 2 {
				if err := cni.DelNetworkList(t.Context(), list, runtime); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// quiet runs plugins as libcni does by itself, and drops what they log.
func quiet() invoke.Exec {
	return &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}}
}

// chain is a network of a plugin that makes a result, and ours twice.
func (n *node) chain(v string, settings ...string) *libcni.NetworkConfigList {
	n.t.Helper()
	script := "#!/bin/sh\ncase $CNI_COMMAND in\nADD) cat <<'END'\n" + resultOf(v) + "\nEND\n;;\n" +
		"VERSION) echo '{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"" + strings.Join(cniversion.All.SupportedVersions(), `", "`) + "\"]}';;\nesac\n"
	syscall.ForkLock.RLock() // a process started now would hold the file open for writing, and no process could execute it
	err := os.WriteFile(filepath.Join(n.runDir, "first"), []byte(script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		n.t.Fatal(err)
	}
	ours := n.configuration(append(settings, `{"cniVersion": null, "name": null}`)...)
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion": %q, "name": "k8s-pod-network", "plugins": [{"type": "first"}, %s, %s]}`, v, ours, ours))
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

func wantResult(t *testing.T, result types.Result, v string) {
	t.Helper()
	if result.Version() != v {
		t.Errorf("got version %s, want %s", result.Version(), v)
	}
	current, err := types100.GetResult(result)
	if err != nil {
		t.Fatal(err)
	}
	if len(current.IPs) == 0 || current.IPs[0].Address.String() != "10.1.2.3/24" || !slices.Equal(current.DNS.Nameservers, []string{"10.0.0.10"}) {
		t.Errorf("got %+v", current)
	}
}

// TestLibcniShowsTheError is what an operator sees of an error: kubelet prints the same text.
func TestLibcniShowsTheError(t *testing.T) {
	t.Parallel()
	n := newNode(t, answer(http.StatusForbidden, ""))
	cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(plugin(t)), n.runDir}, t.TempDir(), quiet())
	_, err := cni.AddNetworkList(context.Background(), n.chain("1.0.0"), &libcni.RuntimeConf{
		ContainerID: "abc", NetNS: n.netns.Path(), IfName: "eth0", Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}},
	})
	want := fmt.Sprintf(`plugin type="istio-cni" failed (add): learn about the pod: pod shop/web-0: no source knows it: `+
		`node agent cannot be reached (unix:%s/agent.sock): connect: no such file or directory; API server forbids it (%s): status 403; `+
		`one of these is enough: see whether the node agent's pod runs on this node, and has its socket in this directory; `+
		`give the service account of %s a role with the verb get on pods`, n.runDir, n.server.URL, n.kubeconfig())
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// mainPlugins builds the plugins that make interfaces, beside ours.
var mainPlugins = sync.OnceValue(func() error {
	for _, path := range []string{"main/bridge", "main/ptp", "ipam/host-local"} {
		if _, err := build("github.com/containernetworking/plugins/plugins/"+path, filepath.Base(path)); err != nil {
			return err
		}
	}
	return nil
})

// TestLibcniLife is the life of a container as runtimes lead it, with all commands that a version
// has, after plugins that make interfaces; ours is there once, and twice.
func TestLibcniLife(t *testing.T) {
	t.Parallel()
	if err := mainPlugins(); err != nil {
		t.Fatal(err)
	}
	for i, v := range cniversion.All.SupportedVersions() {
		for j, first := range []string{"bridge", "ptp"} {
			for times := 1; times <= 2; times++ {
				t.Run(fmt.Sprintf("%s/%s/%d", v, first, times), func(t *testing.T) {
					t.Parallel()
					n := newNode(t, pod(t))
					l := life{n: n, list: n.network(v, first, fmt.Sprintf("br%d%d%d", i, j, times), times), version: v}
					l.cni = libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(plugin(t))}, t.TempDir(), quiet())
					l.runtime = &libcni.RuntimeConf{ContainerID: "abc", NetNS: n.netns.Path(), IfName: "eth0", Args: [][2]string{
						{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", uid},
					}}
					l.lead(t)
				})
			}
		}
	}
}

// network is a chain of a plugin that makes an interface, and ours.
func (n *node) network(v, first, bridge string, times int) *libcni.NetworkConfigList {
	n.t.Helper()
	plugins := []string{fmt.Sprintf(`{"type": %q, "bridge": %q, "ipam": {"type": "host-local", "subnet": "10.1.2.0/24", "dataDir": %q}}`,
		first, bridge, filepath.Join(n.runDir, "ipam"))}
	for range times {
		plugins = append(plugins, string(n.configuration(`{"cniVersion": null, "name": null, "status_policy": "strict"}`)))
	}
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion": %q, "name": "k8s-pod-network", "plugins": [%s]}`, v, strings.Join(plugins, ", ")))
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// life is that of a container.
type life struct {
	n       *node
	cni     *libcni.CNIConfig
	list    *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
	version string
}

func (l life) lead(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if _, err := l.cni.ValidateNetworkList(ctx, l.list); err != nil {
		t.Fatal(err)
	}
	if err := l.status(ctx); err != nil {
		t.Error(err)
	}
	result, err := l.cni.AddNetworkList(ctx, l.list, l.runtime)
	if err != nil {
		t.Fatal(err)
	}
	l.n.mustHold(true)
	cached, err := l.cni.GetNetworkListCachedResult(l.list, l.runtime)
	if err != nil || cached.Version() != l.version || result.Version() != l.version {
		t.Errorf("got result %v, cached %v, %v", result, cached, err)
	}
	l.check(t)
	valid := []types.GCAttachment{{ContainerID: "abc", IfName: "eth0"}}
	if err := l.cni.GCNetworkList(ctx, l.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		t.Error(err)
	}
	if all := l.n.attachments(); !slices.Equal(all, []journal.Attachment{web}) {
		t.Errorf("after GC: %v", all)
	}
	for range 2 {
		if err := l.cni.DelNetworkList(ctx, l.list, l.runtime); err != nil {
			t.Error(err)
		}
	}
	if cached, _ := l.cni.GetNetworkListCachedResult(l.list, l.runtime); cached != nil || len(l.n.attachments()) > 0 {
		t.Errorf("after DEL: %v, %v", cached, l.n.attachments())
	}
}

// status asks again while the API server, which is this busy process, takes longer than a STATUS
// does.
func (l life) status(ctx context.Context) error {
	for {
		err := l.cni.GetStatusNetworkList(ctx, l.list)
		if err == nil || !strings.Contains(err.Error(), "API server did not answer in time") {
			return err
		}
	}
}

// check wants CHECK to succeed, and to fail after another program has removed rules.
func (l life) check(t *testing.T) {
	t.Helper()
	has, err := cniversion.GreaterThanOrEqualTo(l.version, "0.4.0")
	if err != nil {
		t.Fatal(err)
	}
	err = l.cni.CheckNetworkList(t.Context(), l.list, l.runtime)
	if !has {
		if !errors.Is(err, libcni.ErrorCheckNotSupp) {
			t.Errorf("got %v", err)
		}
		return
	}
	if err != nil {
		t.Error(err)
	}
	l.n.nft("flush chain inet istio-cni nat-output")
	var e *types.Error
	if err := l.cni.CheckNetworkList(t.Context(), l.list, l.runtime); !errors.As(err, &e) || e.Code != codeDrift {
		t.Errorf("without rules: %v", err)
	}
}
