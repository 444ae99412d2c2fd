// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// The product's files on a node.
const (
	pluginFile     = "/opt/cni/bin/istio-cni"
	kubeconfigFile = "/run/istio-cni/istio-cni-kubeconfig"
	listFile       = "/etc/cni/net.d/" + cluster.FileName
)

type fault struct {
	name string
	// happen causes the fault, and returns when the cause is over.
	happen func(d *day, n *soaked) error
	// healed reports what must be right again besides [soaked.whole]; nil for nothing more.
	healed func(d *day, n *soaked) bool
	// possible reports whether the fault may happen now; nil for always.
	possible func(d *day, n *soaked) bool
}

func faults() []fault {
	return []fault{
		{name: "kill the daemon", happen: kills("install-cni"), healed: started("install-cni"), possible: (*day).mayKillDaemon},
		{name: "kill the node-watcher", happen: kills("node-watcher"), healed: started("node-watcher"), possible: (*day).mayKill},
		{name: "kill containerd", happen: kills("containerd"), healed: (*day).containerdAnswers},
		{name: "tamper: list overwritten by the primary's", happen: (*day).overwriteList},
		{name: "tamper: list replaced by the primary's", happen: (*day).replaceList},
		{name: "tamper: list deleted, and back as the primary's", happen: (*day).deleteList},
		{name: "tamper: plugin overwritten", happen: replaces(pluginFile, "no program\n", 0o755)},
		{name: "tamper: plugin deleted", happen: removes(pluginFile)},
		{name: "tamper: kubeconfig overwritten", happen: replaces(kubeconfigFile, "{", 0o600)},
		{name: "tamper: kubeconfig deleted", happen: removes(kubeconfigFile)},
		{name: "expire: token in the kubeconfig spoiled", happen: (*day).spoilToken},
		{name: "expire: service account made anew", happen: (*day).revoke, possible: (*day).mayRevoke},
		{name: "disconnect: API server", happen: (*day).stopAPIServer},
		{name: "disconnect: node", happen: (*day).unplug},
	}
}

// kills returns a function that kills a node's program.
func kills(program string) func(*day, *soaked) error {
	return func(d *day, n *soaked) error {
		pid := n.pid(program)
		if pid == "" {
			return fmt.Errorf("%s has no %s", n.Name, program)
		}
		n.killed[program] = pid
		ctx, cancel := context.WithTimeout(d.t.Context(), mostFault)
		defer cancel()
		_, err := n.Run(ctx, "kill", "-KILL", pid)
		return err
	}
}

// started reports whether a program runs again.
func started(program string) func(*day, *soaked) bool {
	return func(_ *day, n *soaked) bool {
		pid := n.pid(program)
		return pid != "" && pid != n.killed[program]
	}
}

// mayKill spares the node that shows whether processes grow.
func (d *day) mayKill(n *soaked) bool { return n.Node != d.steady }

// mayKillDaemon avoids kills after which the kubelet would wait for minutes: it doubles the delay
// with each restart, up to five minutes.
func (d *day) mayKillDaemon(n *soaked) bool {
	return d.mayKill(n) && (n.daemonKilled.IsZero() || time.Since(n.daemonKilled) > daemonKills)
}

// mayRevoke avoids a conflict with the rotation: a restarted kubelet has forgotten how old its
// tokens are.
func (d *day) mayRevoke(*soaked) bool {
	return (!d.awaitsRotation || len(d.rotations) > 0) && (d.revoked.IsZero() || time.Since(d.revoked) > revocations)
}

func (d *day) containerdAnswers(n *soaked) bool {
	if !started("containerd")(d, n) {
		return false
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
	defer cancel()
	_, err := n.Run(ctx, "ctr", "version")
	return err == nil
}

// overwriteList writes into the existing list, as careless agents do.
func (d *day) overwriteList(n *soaked) error {
	return os.WriteFile(n.Path(listFile), []byte(n.primary), 0o644)
}

// replaceList writes the list as careful agents do.
func (d *day) replaceList(n *soaked) error { return n.InstallNetwork(n.network) }

// deleteList deletes the list. The network's agent returns some seconds later.
func (d *day) deleteList(n *soaked) error {
	if err := os.Remove(n.Path(listFile)); err != nil {
		return err
	}
	d.pause(2 * time.Second)
	return n.InstallNetwork(n.network)
}

func replaces(path, text string, mode os.FileMode) func(*day, *soaked) error {
	return func(_ *day, n *soaked) error { return replaceFile(n.Path(path), text, mode) }
}

// replaceFile replaces a file that may be running.
func replaceFile(path, text string, mode os.FileMode) error {
	unfinished := filepath.Join(filepath.Dir(path), ".tampered")
	if err := os.WriteFile(unfinished, []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

func removes(path string) func(*day, *soaked) error {
	return func(_ *day, n *soaked) error { return os.Remove(n.Path(path)) }
}

// spoilToken replaces the token in the plugin's kubeconfig by an unknown one, and keeps the file's
// form.
func (d *day) spoilToken(n *soaked) error {
	token, err := scenario.KubeconfigToken(n.Node)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(n.Path(kubeconfigFile))
	if err != nil {
		return err
	}
	spoiled := token[:len(token)-8] + strings.Repeat("A", 8)
	return replaceFile(n.Path(kubeconfigFile), strings.ReplaceAll(string(text), token, spoiled), 0o600)
}

// revoke makes the API server refuse all tokens, and the kubelets issue new ones to the daemons.
func (d *day) revoke(*soaked) error {
	d.s.RevokeTokens()
	for _, n := range d.nodes {
		d.s.RenewToken(n.Node)
	}
	d.revoked = time.Now()
	return nil
}

func (d *day) stopAPIServer(*soaked) error {
	server := d.s.Cluster.ControlPlane.APIServer
	server.Stop()
	d.pause(8 * time.Second)
	return server.Start()
}

func (d *day) unplug(n *soaked) error {
	if err := n.Unplug(); err != nil {
		return err
	}
	d.pause(8 * time.Second)
	return n.Plug()
}

// pause waits for a random time, up to this limit.
func (d *day) pause(most time.Duration) {
	select {
	case <-time.After(time.Duration(d.random.Int64N(int64(most)))):
	case <-d.t.Context().Done():
	}
}

// whole returns what is wrong with a node; empty if nothing is. The node's own conditions are not
// checked: the kubelet reports them up to a minute late, while pods already start.
func (d *day) whole(ctx context.Context, n *soaked) string {
	list, _ := os.ReadFile(n.Path(listFile))
	token, _ := os.ReadFile(n.Path(n.tokenFile))
	given, _ := scenario.KubeconfigToken(n.Node)
	switch {
	case !bytes.Contains(list, []byte(`"istio-cni"`)):
		return "the list lacks the plugin"
	case !n.samePlugin():
		return "the plugin isn't what was installed"
	case given == "" || given != string(token):
		return "the plugin has another token than the daemon"
	}
	if _, err := d.s.Cluster.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{}); err != nil {
		return err.Error()
	}
	if err := ready(ctx, "http://"+net.JoinHostPort(n.daemon.Status.PodIP, "8000")+"/readyz"); err != nil {
		return err.Error()
	}
	return ""
}

// ready returns an error if a URL does not answer with 200.
func ready(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
