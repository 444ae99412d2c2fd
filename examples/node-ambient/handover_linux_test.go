// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/examples/internal/ambientplugin"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
)

// updated is a node whose node-ambient is replaced. Its API server is away.
type updated struct {
	t       *testing.T
	dir     string
	source  *source
	program string
	args    []string
	pod     *dataplanetest.Pod
}

// newUpdated returns a node whose source tells of pods.
func newUpdated(t *testing.T, pods ...ambient.Pod) *updated {
	t.Helper()
	dir, s := feedPods(t, pods...)
	return &updated{t, dir, s, build(t), arguments(dir), dataplanetest.NewPod(t, dataplanetest.PodOptions{})}
}

func (u *updated) path(name string) string { return filepath.Join(u.dir, name) }

func (u *updated) begin() *process {
	u.t.Helper()
	return begin(u.t, u.program, u.args...)
}

// add is the plugin's ADD of the pod. It fails unless the agent enrols the pod.
func (u *updated) add(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return addPod(ctx, u.dir, u.pod)
}

// addPod is the plugin's ADD of the pod shop/web-0 on a node with a run directory, and without a
// kubeconfig. It fails unless the agent enrols the pod.
func addPod(ctx context.Context, runDir string, pod *dataplanetest.Pod) error {
	return addSandbox(ctx, runDir, webPod().UID, pod.Path(), `[{"address":"10.244.1.10/24"},{"address":"fd00:10:244:1::a/64"}]`)
}

// addSandbox is addPod for a pod's UID, namespace and addresses.
func addSandbox(ctx context.Context, runDir, uid, netns, ips string) error {
	decision, decided, err := ambientplugin.Hook{}.Before(ctx, plugin.Request{
		Command: "ADD", Pod: podsource.Ref{Namespace: "shop", Name: "web-0", UID: uid}, Netns: netns,
		Attachment: journal.Attachment{Network: "pods", ContainerID: "3e1c", Interface: "eth0"},
		Config: pluginconf.Config{
			AmbientEnabled: true, CNIVersion: "1.0.0", RunDir: runDir, Kubeconfig: filepath.Join(runDir, "kubeconfig"),
			PrevResult: json.RawMessage(`{"cniVersion":"1.0.0","ips":` + ips + `}`),
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err == nil && (!decided || decision.Reason != ambientplugin.ReasonEnrolled) {
		err = fmt.Errorf("the pod goes on outside the mesh: %v", decision)
	}
	return err
}

// addAgain adds a pod again and again. It returns a function that waits until an ADD has succeeded
// that began after the call. The test fails for the first ADD that fails.
func addAgain(t *testing.T, add func(context.Context) error) (next func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, asked := make(chan struct{}), make(chan chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			var done chan struct{}
			select {
			case done = <-asked:
			default:
			}
			if err := add(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("an ADD fails: %v", err)
				return
			}
			if done != nil {
				close(done)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() {
		t.Helper()
		done := make(chan struct{})
		select {
		case asked <- done:
		case <-ended:
			t.FailNow()
		}
		select {
		case <-done:
		case <-ended:
			t.FailNow()
		}
	}
}

// TestNoADDFailsDuringHandOvers replaces node-ambient again and again, and kills it at last, while
// pods start one after another. No ADD fails, although no API server tells about the pod.
func TestNoADDFailsDuringHandOvers(t *testing.T) {
	t.Parallel()
	u := newUpdated(t, webPod())
	older := u.begin()
	awaitSocket(t, u.path("pluginevent.sock"))
	proxy := startProxy(t, u.dir)
	next := addAgain(t, u.add)
	next()
	for range 3 {
		newer := u.begin()
		older.await("stands by")
		next()
		if !newer.has(u.pod) {
			t.Error("the pod was not enrolled by the newer process")
		}
		older.end()
		older = newer
	}
	newest := u.begin()
	older.await("stands by")
	next()
	if err := newest.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = newest.cmd.Wait() // it was killed
	older.await("serves again")
	next()
	relayed(t, u.pod, proxy, 1)
	older.end()
}

// TestADDThatWaitsIsHandedOver begins an ADD that waits, for the proxy or for the source to tell of
// the pod. The process that it waits for hands over, and the next one enrols the pod.
func TestADDThatWaitsIsHandedOver(t *testing.T) {
	t.Parallel()
	for name, pods := range map[string][]ambient.Pod{"no proxy": {webPod()}, "unknown pod": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpdated(t, pods...)
			older := u.begin()
			awaitSocket(t, u.path("pluginevent.sock"))
			added := make(chan error, 1)
			go func() { added <- u.add(t.Context()) }()
			for !older.has(u.pod) && len(added) == 0 { // it has the request, then
				runtime.Gosched()
			}
			newer := u.begin()
			older.await("stands by")
			proxy := startProxy(t, u.dir)
			if pods == nil {
				u.source.changes <- ambient.Change{Pods: []ambient.Pod{webPod()}}
			}
			if err := <-added; err != nil {
				t.Fatal(err)
			}
			if !newer.has(u.pod) || older.has(u.pod) {
				t.Errorf("the newer process has the namespace open: %t, the older one: %t", newer.has(u.pod), older.has(u.pod))
			}
			relayed(t, u.pod, proxy, 1)
			older.end()
			newer.end()
		})
	}
}

// feedPods serves a source in the directory of a test, which tells of pods.
func feedPods(t *testing.T, pods ...ambient.Pod) (dir string, s *source) {
	t.Helper()
	dir = t.TempDir()
	s = &source{changes: make(chan ambient.Change, 2), statuses: make(chan ambient.Status, 10000)}
	s.changes <- ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}, {Name: "mesh"}}, Pods: pods, Complete: true}
	serveFeed(t, filepath.Join(dir, "feed"), s)
	return dir, s
}

// arguments are those of the program in a directory, without the host's network.
func arguments(dir string, more ...string) []string {
	return append([]string{
		"-feed=" + filepath.Join(dir, "feed"), "-events=" + filepath.Join(dir, "pluginevent.sock"), "-proxy=" + filepath.Join(dir, "proxy"),
		"-journal=" + filepath.Join(dir, "records"), `-settings={"noHost":true}`,
	}, more...)
}

func startProxy(t *testing.T, dir string) *ambienttest.Proxy {
	t.Helper()
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: filepath.Join(dir, "proxy"), Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	return proxy
}
