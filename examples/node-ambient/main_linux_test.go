// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

func TestUsage(t *testing.T) {
	t.Parallel()
	const needed = "-feed=/f -events=/e -proxy=/p -journal=/j "
	for args, code := range map[string]int{
		"-help": exitOK, "": exitUsage, "-feed=/f": exitUsage, needed + "more": exitUsage, needed + "-settings={": exitUsage,
		needed + `-settings={"unknown":1}`: exitUsage, needed + "-log-level=loud": exitUsage, needed + "-proc=/missing": exitFailure,
		needed + `-settings={"dataplane":"ebpf"}`: exitFailure,
	} {
		var out bytes.Buffer
		if got := run(t.Context(), environment{args: strings.Fields(args), stdout: io.Discard, stderr: &out}); got != code || out.Len() == 0 {
			t.Errorf("%q: exit code %d, want %d: %s", args, got, code, &out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run(t.Context(), environment{args: []string{"-version"}, stdout: &out, stderr: &errs, version: "v1.2.3"})
	if code != exitOK || out.String() != "node-ambient v1.2.3\n" || errs.Len() > 0 {
		t.Errorf("code %d: %q, %q", code, &out, &errs)
	}
}

// source is what node-watcher knows.
type source struct {
	changes  chan ambient.Change
	statuses chan ambient.Status
}

func (s *source) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-s.changes:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

func (s *source) Annotate(_ context.Context, _ interception.Pod, status ambient.Status) error {
	s.statuses <- status
	return nil
}

// webPod is the API server's object of a pod of the mesh.
func webPod() ambient.Pod {
	return ambient.Pod{Pod: interception.Pod{
		Namespace: "shop", Name: "web-0", UID: "7f0b", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}}
}

// TestNode has a source of pods, a proxy and a plugin around the program: a pod is enrolled by the
// plugin's event, its connections go through the proxy, and the source gets its status.
func TestNode(t *testing.T) {
	t.Parallel()
	for _, dataplane := range []string{"nftables", "iptables", ""} {
		t.Run("dataplane "+dataplane, func(t *testing.T) {
			t.Parallel()
			testNode(t, dataplane)
		})
	}
}

func testNode(t *testing.T, dataplane string) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	s := &source{changes: make(chan ambient.Change, 1), statuses: make(chan ambient.Status, 10)}
	s.changes <- ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: []ambient.Pod{webPod()}, Complete: true}
	serveFeed(t, path("feed"), s)
	out, end := launch(t,
		"-feed="+path("feed"), "-events="+path("events"), "-proxy="+path("proxy"), "-journal="+path("records"), "-log-level=DEBUG",
		`-settings={"proxyNamespace":"istio-system","noHost":true,"dataplane":"`+dataplane+`"}`)
	awaitSocket(t, path("events"))
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: path("proxy"), Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	if decision, err := enrol(t, path("events"), pod, time.Minute); err != nil || !decision.Capture {
		t.Fatalf("the plugin gets %+v, %v", decision, err)
	}
	relayed(t, pod, proxy, 1)
	if status := <-s.statuses; status != ambient.StatusEnabled {
		t.Errorf("the source is asked for the status %q", status)
	}
	wantReports(t, out)
	if code := end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	relayed(t, pod, proxy, 1) // without the program, too
}

// launchServed runs the program with a source and a proxy, and has a pod enrolled. It returns the
// socket for the plugin and operators.
func launchServed(t *testing.T) (events string, pod *dataplanetest.Pod, proxy *ambienttest.Proxy) {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	s := &source{changes: make(chan ambient.Change, 1), statuses: make(chan ambient.Status, 10)}
	s.changes <- ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: []ambient.Pod{webPod()}, Complete: true}
	serveFeed(t, path("feed"), s)
	launch(t, "-feed="+path("feed"), "-events="+path("events"), "-proxy="+path("proxy"), "-journal="+path("records"), `-settings={"noHost":true}`)
	awaitSocket(t, path("events"))
	if node, err := event.Pods(t.Context(), path("events"), event.Selection{}); err != nil || node.Proxy.Connection != event.ProxyNeverConnected {
		t.Errorf("before the proxy is there: %+v, %v", node, err)
	}
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: path("proxy"), Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	pod = dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	if _, err := enrol(t, path("events"), pod, time.Minute); err != nil {
		t.Fatal(err)
	}
	return path("events"), pod, proxy
}

// web is the pod as operators select it.
func web() event.Selection { return event.Selection{Namespace: "shop", Name: "web-0"} }

// TestOperatorAsks asks about a pod.
func TestOperatorAsks(t *testing.T) {
	t.Parallel()
	events, pod, _ := launchServed(t)
	sandboxtest.Run(t, pod.File(), "add table inet vpn; add chain inet vpn first { type filter hook prerouting priority -350; policy drop; }\n"+
		"add rule inet vpn first accept", "nft", "-f", "-")
	node, err := event.Pods(t.Context(), events, web())
	if err != nil || len(node.Pods) != 1 || node.Proxy.Connection != event.ProxyConnected || !node.Complete {
		t.Fatalf("%+v, %v", node, err)
	}
	got := node.Pods[0]
	if got.UID != "7f0b" || !got.Eligible || !got.Managed || got.Rules != "planned" || got.Listeners != "serves" || got.Status != "enabled" || got.Error != "" {
		t.Errorf("the pod is %+v", got)
	}
	if len(got.Foreign) != 1 || got.Foreign[0].String() != "inet vpn/first (hook prerouting, priority -350)" ||
		!slices.Equal(got.Foreign[0].Rules, []string{"policy drop"}) || got.ForeignError != "" {
		t.Errorf("other programs' chains are %+v, %q", got.Foreign, got.ForeignError)
	}
	if node, err := event.Pods(t.Context(), events, event.Selection{}); err != nil || len(node.Pods) != 1 || node.Pods[0].Foreign != nil {
		t.Errorf("the answer about all pods is %+v, %v", node, err)
	}
}

// TestOperatorWithdraws takes a pod out of the mesh and lets it in again.
func TestOperatorWithdraws(t *testing.T) {
	t.Parallel()
	events, pod, proxy := launchServed(t)
	if _, err := event.Withdraw(t.Context(), events, event.Selection{UID: "none"}, nil); err == nil || !strings.Contains(err.Error(), "no such pod") {
		t.Errorf("an unknown pod: %v", err)
	}
	out := 0
	if left, err := event.Withdraw(t.Context(), events, web(), func(event.PodState) { out++ }); err != nil || len(left) > 0 || out != 1 {
		t.Errorf("out %d, left %v, %v", out, left, err)
	}
	relayed(t, pod, proxy, 0)
	if node, err := event.Pods(t.Context(), events, web()); err != nil || len(node.Pods) != 1 || node.Pods[0].Reason != "withdrawn" {
		t.Errorf("a pod that was withdrawn: %+v, %v", node, err)
	}
	if err := event.Readmit(t.Context(), events); err != nil {
		t.Error(err)
	}
	if _, err := enrol(t, events, pod, time.Minute); err != nil {
		t.Fatal(err)
	}
	relayed(t, pod, proxy, 1)
}

// reports are what the program has reported.
type reports struct {
	pod      ambientnews.Pod
	node     ambientnews.Node
	captured bool           // the plugin was told that the pod is captured
	counts   map[string]int // by what and of what
}

func (r *reports) add(line ambientnews.Line) {
	switch {
	case line.Count != nil:
		r.counts[line.Count.What+" "+line.Count.Of] += line.Count.Times
	case line.Pod != nil:
		r.pod = *line.Pod
	case line.Node != nil:
		r.node = *line.Node
	case line.Request != nil:
		r.captured = line.Request.Captured && line.Request.Status == http.StatusOK && line.Request.Seconds > 0
	}
}

// complete reports whether the pod is enrolled and all that is to be counted was. The proxy may
// answer the end of the snapshot after that.
func (r *reports) complete(counts map[string]int) bool {
	for what := range counts {
		if r.counts[what] == 0 {
			return false
		}
	}
	return r.captured && r.pod.Wanted && r.pod.Step == "" && r.node.Complete && r.node.Proxies == 1
}

// wantReports reads what the program reports, until the pod is enrolled.
func wantReports(t *testing.T, lines <-chan ambientnews.Line) {
	t.Helper()
	got, want := reports{counts: map[string]int{}}, map[string]int{"change add": 1, "ack snapshot sent": 1, "ack add": 1}
	for !got.complete(want) {
		line, more := <-lines
		if !more {
			t.Fatalf("the program has ended after %+v", got)
		}
		got.add(line)
	}
	pod := got.pod
	if pod.UID != "7f0b" || pod.Name != "web-0" || pod.Error != "" || pod.Proxy != "serves" || pod.Rules != "planned" || got.node.Feed != "" {
		t.Errorf("the program reports %+v, %+v", pod, got.node)
	}
	delete(got.counts, "ack keep") // there is one if the feed tells of the pod before the proxy connects
	if diff := cmp.Diff(want, got.counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// TestReports: the daemon learns what has changed, once.
func TestReports(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := &reporter{to: &out, log: slog.New(slog.DiscardHandler)}
	lines := func() (all []ambientnews.Line) {
		r.flush()
		for decoder := json.NewDecoder(&out); decoder.More(); {
			var line ambientnews.Line
			if err := decoder.Decode(&line); err != nil {
				t.Fatal(err)
			}
			all = append(all, line)
		}
		out.Reset()
		return all
	}
	hello := &zds.Hello{}
	r.proxy(zds.Event{Connection: 1, Hello: hello})
	if got := lines(); got != nil {
		t.Errorf("before it listens, it reports %+v", got)
	}
	r.begin(false)
	r.proxy(zds.Event{Connection: 2, Hello: hello})
	r.proxy(zds.Event{Connection: 2, Request: zds.Request{Kind: zds.KindAdd}, Err: errors.New("refused")})
	r.proxy(zds.Event{Connection: 1, Err: errors.New("it has ended")})
	r.feed(feed.Event{Kind: feed.Connected})
	r.feed(feed.Event{Kind: feed.Completed})
	for range 2 {
		r.feed(feed.Event{Kind: feed.Disconnected, Err: errors.New("away")})
	}
	var nodes []ambientnews.Node
	for _, line := range lines() {
		if line.Node != nil {
			nodes = append(nodes, *line.Node)
		} else if *line.Count != (ambientnews.Count{What: ambientnews.Nack, Of: "add", Times: 1}) {
			t.Errorf("of the refusal, it reports %+v", line)
		}
	}
	want := []ambientnews.Node{
		{Proxies: 1},
		{Proxies: 2},
		{Proxies: 1, Lost: "it has ended"},
		{Proxies: 1, Lost: "it has ended", Complete: true},
		{Proxies: 1, Lost: "it has ended", Complete: true, Feed: "away"},
	}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	pod := agent.Pod{UID: "7f0b", Wanted: ambient.Wanted{Enrolled: true}, Step: ambient.StepOpen}
	left := agent.Pod{UID: "7f0b"}
	for _, p := range []agent.Pod{pod, pod, left, pod} {
		r.pod(p)
	}
	if got := lines(); len(got) != 3 || !got[1].Pod.Left() || got[2].Pod.Left() {
		t.Errorf("it reports of a pod %+v", got)
	}
	r.request(event.Outcome{Path: "/v1/pods", Status: http.StatusOK})
	r.request(event.Outcome{Path: "/cmdadd", Status: http.StatusInternalServerError, Duration: time.Second, Err: errors.New("no proxy")})
	if diff := cmp.Diff([]ambientnews.Line{{Request: &ambientnews.Request{Status: http.StatusInternalServerError, Seconds: 1}}}, lines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOperatorLearnsWhatIsLeft takes a pod out whose connection does not end.
func TestOperatorLearnsWhatIsLeft(t *testing.T) {
	t.Parallel()
	events, pod, _ := launchServed(t)
	connection, err := pod.Connect(t.Context(), dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() }) // the test may have closed it
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	left, err := event.Withdraw(ctx, events, event.Selection{}, func(pod event.PodState) { t.Errorf("%+v is out", pod) })
	if own, is := errors.AsType[*event.Error](err); !is || own.Code != event.CodeUnfinished || len(left) != 1 || left[0].Step != "await-drained" {
		t.Fatalf("left are %+v, %v", left, err)
	}
	if err := connection.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := event.Withdraw(t.Context(), events, event.Selection{}, func(event.PodState) {}); err != nil || len(left) > 0 {
		t.Errorf("without the connection: %+v, %v", left, err)
	}
}

// TestNoSource has no source of pods: the plugin learns for what its pod waits.
func TestNoSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events := filepath.Join(dir, "events")
	launch(t, "-feed="+filepath.Join(dir, "feed"), "-events="+events, "-proxy="+filepath.Join(dir, "proxy"), "-journal="+filepath.Join(dir, "records"),
		`-settings={"noHost":true}`)
	awaitSocket(t, events)
	_, err := enrol(t, events, dataplanetest.NewPod(t, dataplanetest.PodOptions{}), time.Second)
	if own, is := errors.AsType[*event.Error](err); !is || own.Code != event.CodeUnknownPod {
		t.Errorf("the plugin gets %v, want that the pod is not known", err)
	}
}

// serveFeed feeds agents until the test ends.
func serveFeed(t testing.TB, socket string, s *source) {
	t.Helper()
	server, err := feed.Listen(t.Context(), socket, feed.ServerOptions{Source: s, Annotator: s})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ctx) // it ends with the context
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// launch runs the program until the test ends or end is called, which returns its exit code.
func launch(t *testing.T, args ...string) (lines <-chan ambientnews.Line, end func() int) {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	code, out := make(chan int, 1), make(chan ambientnews.Line, 1000)
	log := t.Output()
	go func() {
		code <- run(ctx, environment{args: args, stdout: writer, stderr: log})
		_ = writer.Close() // it never fails
	}()
	go func() {
		defer close(out)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			var line ambientnews.Line
			if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
				t.Errorf("%s: %v", scanner.Text(), err)
			}
			out <- line
		}
	}()
	ended := -1
	end = func() int {
		cancel()
		if ended < 0 {
			ended = <-code
		}
		return ended
	}
	t.Cleanup(func() { end() })
	return out, end
}

// awaitSocket waits until the program listens.
func awaitSocket(t testing.TB, path string) {
	t.Helper()
	for {
		if connection, err := net.Dial("unix", path); err == nil {
			_ = connection.Close() // nothing was sent
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the program has no socket")
		default:
		}
	}
}

// enrol does what the plugin does.
func enrol(t testing.TB, events string, pod *dataplanetest.Pod, timeout time.Duration) (interception.Decision, error) {
	t.Helper()
	file, err := os.Open(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return event.Enrol(ctx, events, event.Pod{
		Namespace: "shop", Name: "web-0", UID: "7f0b", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")},
	}, file)
}

// relayed makes a connection from the pod, which the proxy has to relay.
func relayed(t *testing.T, pod *dataplanetest.Pod, proxy *ambienttest.Proxy, want int) {
	t.Helper()
	before := proxy.Relayed()
	seen, err := pod.Send(t.Context(), dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")})
	if err != nil || seen.Verdict != dataplanetest.Accepted || proxy.Relayed()-before != want {
		t.Errorf("%s, %v, relayed %d times, want %d", seen, err, proxy.Relayed()-before, want)
	}
}

// TestOutageIsLoggedOnce has a source that is away for several attempts, and then another failure.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	observe := logFeed(t.Context(), slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	for range 3 {
		observe(feed.Event{Kind: feed.Disconnected, Err: errors.New("refused")})
	}
	observe(feed.Event{Kind: feed.NotAnnotated, UID: "a", Err: errors.New("forbidden")})
	observe(feed.Event{Kind: feed.Disconnected, Err: errors.New("refused")})
	observe(feed.Event{Kind: feed.Connected})
	observe(feed.Event{Kind: feed.Disconnected, Err: errors.New("refused")})
	if got := strings.Count(out.String(), "refused"); got != 2 {
		t.Errorf("the outages are logged %d times, want twice:\n%s", got, &out)
	}
}

// TestUncountedHostIsRight has a count fail: that is no error of the host, and hides none of the
// other agent while pods move.
func TestUncountedHostIsRight(t *testing.T) {
	t.Parallel()
	r := &reporter{to: new(bytes.Buffer), log: slog.New(slog.DiscardHandler)}
	hosts := &hostErrors{tell: surroundings{report: r, log: r.log}.observeHost}
	former, present := hosts.of(0), hosts.of(1)
	want := func(what, want string) {
		t.Helper()
		if got := r.hostError(); got != want {
			t.Errorf("%s: the host's error is %q, want %q", what, got, want)
		}
	}
	former(agent.ErrUncounted)
	want("a failed count", "")
	present(errors.New("refused"))
	want("another agent's error, too", "refused")
	present(nil)
	want("that error has ended", "")
}
