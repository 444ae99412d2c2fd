// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

const (
	// tokenLife is the shortest life that the API server allows: 10 minutes.
	tokenLife = 600 * time.Second
	// tokenVolume is the volume of the daemon's token.
	tokenVolume = "short-lived-token"
)

// rotation is a token renewal by the kubelet itself.
type rotation struct {
	node  string
	at    time.Duration // within the day
	age   time.Duration // of the replaced token
	taken time.Duration // from the kubelet's file to the plugin's kubeconfig
}

// shortenTokens gives the daemons tokens that the kubelets renew within the day, in place of the
// service account's tokens.
func shortenTokens(s *scenario.Scenario) {
	patch := func(what, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			sets := s.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace)
			_, err := sets.Patch(ctx, "istio-cni-node", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{})
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		}
	}
	const form = `{"spec": {"template": {"spec": {"containers": [{"name": "install-cni", "volumeMounts": [%s]}], "volumes": [%s]}}}}`
	const mount, volume = `"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"`, `"name": "` + tokenVolume + `"`
	s.Cleanup("give the daemons the usual tokens",
		patch("back", fmt.Sprintf(form, `{`+mount+`, "$patch": "delete"}`, `{`+volume+`, "$patch": "delete"}`)))
	s.Do("give the daemons tokens of ten minutes", patch("there", fmt.Sprintf(form, `{`+mount+`, `+volume+`, "readOnly": true}`, fmt.Sprintf(
		`{%s, "projected": {"sources": [
			{"serviceAccountToken": {"path": "token", "expirationSeconds": %d}},
			{"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
			{"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
		]}}`, volume, int(tokenLife.Seconds())))))
	s.Await("the daemons with such tokens", func(ctx context.Context) (bool, error) {
		set, err := s.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).Get(ctx, "istio-cni-node", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		now, wanted := set.Status, set.Status.DesiredNumberScheduled
		return now.ObservedGeneration == set.Generation && now.UpdatedNumberScheduled == wanted && now.NumberReady == wanted, nil
	})
}

func (n *soaked) tokenPath() string {
	return filepath.Join("/var/lib/kubelet/pods", string(n.daemon.UID), "volumes/kubernetes.io~projected", tokenVolume, "token")
}

// token returns the daemon's token, and its time of issue.
func (n *soaked) token() (text string, issued time.Time, err error) {
	content, err := os.ReadFile(n.Path(n.tokenFile))
	if err != nil {
		return "", time.Time{}, err
	}
	parts := strings.Split(string(content), ".")
	if len(parts) != 3 {
		return "", time.Time{}, fmt.Errorf("the token on %s has %d parts, and should have 3", n.Name, len(parts))
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", time.Time{}, err
	}
	var times struct{ Iat, Exp int64 }
	err = json.Unmarshal(claims, &times)
	if err == nil && times.Exp-times.Iat != int64(tokenLife.Seconds()) {
		err = fmt.Errorf("the token on %s lives for %d s", n.Name, times.Exp-times.Iat)
	}
	return string(content), time.Unix(times.Iat, 0), err
}

// rotationDue reports whether a kubelet will soon renew a daemon's token, at four fifths of its
// life.
func (d *day) rotationDue() bool {
	if !d.awaitsRotation || len(d.rotations) > 0 {
		return false
	}
	for _, n := range d.nodes {
		if _, issued, err := n.token(); err == nil && time.Since(issued) > tokenLife*4/5-30*time.Second {
			return true
		}
	}
	return false
}

// awaitRotations waits until each daemon's token has been renewed without a restart, and the same
// process has taken the new token over. Pods come and go meanwhile, without other faults.
func (d *day) awaitRotations() {
	d.t.Helper()
	type state struct {
		token, pid string
		issued     time.Time
	}
	before := map[*soaked]state{}
	for _, n := range d.nodes {
		token, issued, err := n.token()
		if err != nil {
			d.t.Fatal(err)
		}
		before[n] = state{token, n.pid("install-cni"), issued}
	}
	for len(d.rotations) < len(d.nodes) {
		var changed *soaked
		d.s.AwaitFor(tokenLife/2, "another token", func(context.Context) (bool, error) {
			for n, b := range before {
				if token, _, err := n.token(); err == nil && token != b.token {
					changed = n
				}
			}
			return changed != nil, nil
		})
		n, b, at := changed, before[changed], time.Now()
		delete(before, n)
		token, _, _ := n.token()
		d.s.Await("the new token in the kubeconfig on "+n.Name, func(ctx context.Context) (bool, error) {
			given, _ := scenario.KubeconfigToken(n.Node)
			if given != token {
				return false, nil
			}
			return d.s.Takes(ctx, given)
		})
		now := rotation{node: n.Name, at: at.Sub(d.begin), age: at.Sub(b.issued), taken: time.Since(at)}
		if pid := n.pid("install-cni"); pid != b.pid {
			d.t.Errorf("the daemon on %s was process %s before its token changed, and is %s", n.Name, b.pid, pid)
		}
		d.startWithNewToken(n, now)
	}
}

// startWithNewToken checks that pods start with the new token.
func (d *day) startWithNewToken(n *soaked, r rotation) {
	d.t.Helper()
	w := scenario.Workload{Name: n.Name + "-behind-rotation", Injected: true, Node: n.Name}
	pod, err := d.pods.startPod(n.Node, w)
	if err == nil {
		err = d.pods.stopPod(pod)
	}
	if err != nil {
		d.t.Errorf("after the rotation on %s: %v", n.Name, err)
	}
	d.rotations = append(d.rotations, r)
	d.t.Logf("%s  %s: the kubelet gave the daemon another token, at an age of %v of the one before; the kubeconfig had it %v later",
		d.clock(r.at), n.Name, r.age.Round(time.Second), r.taken.Round(time.Millisecond))
}
