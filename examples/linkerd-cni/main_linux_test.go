// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/kubeconfig"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

// served is the pod as the API server returns it.
const served = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-0", "uid": "u1",
	"annotations": {"config.linkerd.io/skip-inbound-ports": "9000", "config.linkerd.io/skip-outbound-ports": "5432"}},
	"spec": {"containers": [{"name": "web"}, {"name": "linkerd-proxy"}]}}`

// apiServer starts an API server with the pod, and writes a kubeconfig for it.
func apiServer(t *testing.T, credentials string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/shop/pods/web-0" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, served)
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	file, err := kubeconfig.Build(kubeconfig.Input{
		Server: address, Token: kubeconfig.NewToken("a-token"), Name: "linkerd-cni",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(credentials, file.YAML(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLife takes a pod with Linkerd's proxy through its life as a container runtime does, and opens
// connections while its rules are in place.
func TestLife(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(directory, "linkerd-cni"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	credentials := filepath.Join(directory, "kubeconfig")
	apiServer(t, credentials)
	entry, err := json.Marshal(map[string]string{"type": "linkerd-cni", "kubeconfig": credentials, "cni_agent_run_dir": filepath.Join(directory, "run")})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "pods", "plugins": [%s]}`, entry))
	if err != nil {
		t.Fatal(err)
	}
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Ports: []uint16{8080, 9000}, ProxyPorts: []uint16{4140, 4143}, ProxyUID: 2102, ProxyGID: 2102,
	})
	runtime := &libcni.RuntimeConf{ContainerID: "web", NetNS: pod.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", "u1"},
	}}
	cni, ctx := libcni.NewCNIConfigWithCacheDir([]string{directory}, filepath.Join(directory, "cache"), nil), t.Context()

	if _, err := cni.ValidateNetworkList(ctx, list); err != nil { // VERSION
		t.Fatal(err)
	}
	if err := cni.GetStatusNetworkList(ctx, list); err != nil {
		t.Error(err)
	}
	if _, err := cni.AddNetworkList(ctx, list, runtime); err != nil {
		t.Fatal(err)
	}
	wantPorts(t, pod)
	if err := cni.CheckNetworkList(ctx, list, runtime); err != nil {
		t.Error(err)
	}
	if err := cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "web", IfName: "eth0"}}}); err != nil {
		t.Error(err)
	}
	wantDrift(t, pod, func() error { return cni.CheckNetworkList(ctx, list, runtime) })
	if err := cni.DelNetworkList(ctx, list, runtime); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(directory, "run", "journal", "*.json")); err != nil || len(left) > 0 {
		t.Errorf("DEL left %v, %v", left, err)
	}
}

// wantPorts checks where connections arrive in a captured pod.
func wantPorts(t *testing.T, pod *dataplanetest.Pod) {
	t.Helper()
	for _, test := range []struct {
		from dataplanetest.Place
		dst  string
		want uint16
	}{
		{dataplanetest.Elsewhere, "10.244.1.10:8080", 4143},
		{dataplanetest.Elsewhere, "[fd00:10:244:1::a]:8080", 4143},
		{dataplanetest.Elsewhere, "10.244.1.10:9000", 9000}, // skipped by the annotation
		{dataplanetest.InPod, "192.0.2.1:80", 4140},
		{dataplanetest.InPod, "[2001:db8::1]:80", 4140},
		{dataplanetest.InPod, "10.244.1.10:8080", 8080}, // by lo
	} {
		probe := dataplanetest.Probe{From: test.from, Dst: netip.MustParseAddrPort(test.dst)}
		if got, err := pod.Send(t.Context(), probe); err != nil || got.At != dataplanetest.InPod || got.Port != test.want {
			t.Errorf("%s: %s, %v; want port %d", probe, got, err, test.want)
		}
	}
}

// wantDrift removes the pod's rules, and checks that CHECK reports it.
func wantDrift(t *testing.T, pod *dataplanetest.Pod, check func() error) {
	t.Helper()
	ns, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := dataplane.Remove(t.Context(), ns, owner); err != nil {
		t.Fatal(err)
	}
	var refused *types.Error
	if err := check(); !errors.As(err, &refused) || refused.Code != 160 || !strings.Contains(refused.Msg, "missing") {
		t.Errorf("CHECK without rules: %v", err)
	}
}
