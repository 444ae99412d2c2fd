// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/internal/podnews"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	for args, code := range map[string]int{
		"-help":                                 exitOK,
		"":                                      exitUsage,
		"-node=a -dir=/d":                       exitUsage,
		"-node=a -server=http://a":              exitUsage,
		"-dir=/d -server=http://a":              exitUsage,
		"-node=a -dir=/d -server=http://a more": exitUsage,
		"-node=a -dir=/d -server=http://a -log-level=loud":                             exitUsage,
		"-node=a -dir=/no/such/dir -server=http://127.0.0.1":                           exitFailure,
		"-node=a -dir=/d -server=nothing://%":                                          exitFailure,
		"-node=a -dir=/d -server=http://127.0.0.1 -feed=/d/f -ambient={":               exitFailure,
		`-node=a -dir=/d -server=http://127.0.0.1 -feed=/d/f -ambient={"unknown":"1"}`: exitFailure,
	} {
		var out bytes.Buffer
		if got := run(t.Context(), environment{args: strings.Fields(args), stdout: io.Discard, stderr: &out, trimAfter: time.Hour}); got != code || out.Len() == 0 {
			t.Errorf("%q: exit code %d, want %d: %s", args, got, code, &out)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	var out, help bytes.Buffer
	if code := run(t.Context(), environment{args: []string{"-version"}, stdout: &out, stderr: &help, version: "v1.2.3"}); code != exitOK ||
		out.String() != "node-watcher v1.2.3\n" || help.Len() > 0 {
		t.Errorf("code %d: %q, %q", code, &out, &help)
	}
	run(t.Context(), environment{args: []string{"--help"}, stdout: &out, stderr: &help})
	for _, want := range []string{"install-cni starts it", "Example:", "Exit codes:", "-version"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("no %q in %s", want, &help)
		}
	}
}

// heardUntilReady returns what the process reports of itself and of a pod, until it has reported
// both.
func heardUntilReady(t *testing.T, stdout io.Reader) (said []podsource.AgentStatus, told *interception.Pod) {
	t.Helper()
	ready := false
	for lines := bufio.NewScanner(stdout); (told == nil || !ready) && lines.Scan(); {
		var line struct {
			podsource.AgentStatus
			podnews.News
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line.Pod != nil {
			told = line.Pod
			continue
		}
		said, ready = append(said, line.AgentStatus), line.Ready
	}
	return said, told
}

// TestProcess: the process answers, and ends with its standard input.
func TestProcess(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "web-0", UID: "7f0b", Node: "a"}, fakecluster.Pod{Namespace: "shop", Name: "web-1", Node: "b"})
	dir := privateDirectory(t)
	process := exec.Command(program(t), "-node=a", "-dir="+dir, "-server="+serve(t, cluster))
	process.Env = []string{}
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	process.Stderr = &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	said, told := heardUntilReady(t, stdout)
	if len(said) != 2 || said[0].Ready || said[0].Reason == "" || told == nil || told.UID != "7f0b" || len(told.Containers) != 2 {
		t.Errorf("it said %+v, and of pods %+v\n%s", said, told, &log)
	}
	agent := podsource.Agent{RunDir: dir, Once: true}
	if pod, err := agent.Pod(context.Background(), podsource.Ref{Namespace: "shop", Name: "web-0", UID: "7f0b"}); err != nil || len(pod.Containers) != 2 {
		t.Errorf("got %+v, %v", pod, err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
}
