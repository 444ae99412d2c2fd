// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// patience is how long a test waits for an event that should come at once.
const patience = 30 * time.Second

// TestMemoryIsGivenBackAfterWork asks for a pod, and changes one. Memory is returned after each
// time, more often than at the start alone.
//
//nolint:paralleltest // other tests call run, which sets the logger of client-go for the whole process
func TestMemoryIsGivenBackAfterWork(t *testing.T) {
	cluster := fakecluster.New()
	pod := fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b", Node: "a"}
	cluster.Put(pod)
	server := httptest.NewServer(cluster.Handler())
	t.Cleanup(func() { cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lines, said := io.Pipe()
	trims := make(chan struct{}) // a trim waits until it is noticed
	ctx, cancel := context.WithCancel(t.Context())
	env := environment{
		args: []string{"-node=a", "-dir=" + dir, "-server=" + server.URL}, stdout: said, stderr: t.Output(), trimAfter: time.Millisecond,
		trim: func() error {
			select {
			case trims <- struct{}{}:
			case <-ctx.Done():
			}
			return nil
		},
	}
	done := make(chan struct{})
	o, err := parse(env)
	if err != nil {
		t.Fatal(err)
	}
	// Not all of run, which sets the log of the whole process.
	go func() {
		defer close(done)
		if err := watch(ctx, env, o, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); _ = lines.Close(); <-done })
	var status podsource.AgentStatus
	for decoder := json.NewDecoder(lines); !status.Ready; {
		if err := decoder.Decode(&status); err != nil {
			t.Fatal(err)
		}
	}
	go io.Copy(io.Discard, lines) //nolint:errcheck // the daemon would read the rest, too
	agent := podsource.Agent{RunDir: dir}
	for name, work := range map[string]func(i int) error{
		"question": func(int) error {
			_, err := agent.Pod(ctx, podsource.Ref{Namespace: "shop", Name: "web-0", UID: "7f0b"})
			return err
		},
		"change": func(i int) error {
			pod.Labels = map[string]string{"i": fmt.Sprint(i)}
			cluster.Put(pod)
			return nil
		},
	} {
		for i := range 10 {
			if err := work(i); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			select {
			case <-trims:
			case <-time.After(patience):
				t.Fatalf("%s: no memory is given back", name)
			}
		}
	}
}
