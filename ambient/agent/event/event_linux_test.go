// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
)

// enroller answers as the test says, and keeps what it was given.
type enroller struct {
	decision interception.Decision
	err      error
	waits    bool // until the context ends
	called   chan call
}

type call struct {
	pod      event.Pod
	inode    uint64
	deadline time.Duration
}

func (e *enroller) Enrol(ctx context.Context, pod event.Pod, namespace *os.File) (interception.Decision, error) {
	var stat unix.Stat_t
	err := unix.Fstat(int(namespace.Fd()), &stat)
	if err := errors.Join(err, namespace.Close()); err != nil {
		return interception.Decision{}, err
	}
	deadline, _ := ctx.Deadline()
	e.called <- call{pod, stat.Ino, time.Until(deadline)}
	if e.waits {
		<-ctx.Done()
		return interception.Decision{}, errors.New("the proxy does not serve the pod yet")
	}
	return e.decision, e.err
}

// serve runs a server, and returns its socket and how its requests ended.
func serve(t *testing.T, e *enroller) (socket string, outcomes <-chan event.Outcome) {
	t.Helper()
	e.called = make(chan call, 100)
	return serveWith(t, event.Options{Enroller: e, Timeout: time.Hour})
}

func serveWith(t *testing.T, o event.Options) (socket string, outcomes <-chan event.Outcome) {
	t.Helper()
	seen := make(chan event.Outcome, 100)
	o.Observe = func(o event.Outcome) { seen <- o }
	socket = filepath.Join(t.TempDir(), "pluginevent.sock")
	server, err := event.Listen(t.Context(), socket, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket, seen
}

// anyFile opens a file in place of a namespace: the server does not look at it.
func anyFile(t *testing.T) (*os.File, uint64) {
	t.Helper()
	file, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	return file, stat.Ino
}

func web() event.Pod {
	return event.Pod{
		Namespace: "shop", Name: "web-0", UID: "7f0b", Container: "3e1c",
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.6"), netip.MustParseAddr("fd00::6")},
	}
}

func TestEnrol(t *testing.T) {
	t.Parallel()
	want := interception.Decision{Capture: true, Reason: "namespace-label", Detail: "istio.io/dataplane-mode", OfPod: true}
	e := &enroller{decision: want}
	socket, outcomes := serve(t, e)
	file, inode := anyFile(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := event.Enrol(ctx, socket, web(), file)
	if err != nil || got != want {
		t.Fatalf("Enrol = %+v, %v, want %+v", got, err, want)
	}
	c := <-e.called
	if !reflect.DeepEqual(c.pod, web()) || c.inode != inode {
		t.Errorf("the agent was asked about %+v with inode %d, want %+v with %d", c.pod, c.inode, web(), inode)
	}
	if c.deadline < 30*time.Second || c.deadline > 54*time.Second {
		t.Errorf("the agent has %s, want nine tenths of the minute that the plugin waits", c.deadline)
	}
	if o := <-outcomes; o.Status != 200 || o.Decision != want || o.Err != nil || o.Path != "/v1/enrol" || o.Duration <= 0 {
		t.Errorf("the outcome is %+v", o)
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("the caller's file: %v", err)
	}
}

func TestEnrolFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		enroller enroller
		code     event.Code
		message  string
	}{
		"with a code": {enroller{err: &event.Error{Code: event.CodeUnknownPod, Message: "not heard of"}}, event.CodeUnknownPod, "not heard of"},
		"without one": {enroller{err: errors.New("rules: no space left")}, event.CodeUnfinished, "rules: no space left"},
		"in time":     {enroller{waits: true}, event.CodeUnfinished, "the proxy does not serve the pod yet"},
		"no decision": {enroller{}, event.CodeProtocol, "none of this protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, _ := serve(t, &test.enroller)
			file, _ := anyFile(t)
			ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{true: 2 * time.Second, false: time.Minute}[test.enroller.waits])
			defer cancel()
			_, err := event.Enrol(ctx, socket, web(), file)
			var own *event.Error
			if !errors.As(err, &own) || own.Code != test.code || !strings.Contains(own.Message, test.message) {
				t.Fatalf("Enrol fails with %v, want code %s and %q", err, test.code, test.message)
			}
			if !strings.Contains(err.Error(), "shop/web-0") || !strings.Contains(err.Error(), socket) {
				t.Errorf("%q names neither pod nor socket", err)
			}
		})
	}
}

// TestEnrolWithoutAgent has no socket, and one on which no program listens.
func TestEnrolWithoutAgent(t *testing.T) {
	t.Parallel()
	file, _ := anyFile(t)
	socket := filepath.Join(t.TempDir(), "pluginevent.sock")
	if _, err := event.Enrol(t.Context(), socket, web(), file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a socket: %v", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := event.Enrol(t.Context(), socket, web(), file); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
}

// TestPluginLeaves ends the plugin while the agent works on its pod.
func TestPluginLeaves(t *testing.T) {
	t.Parallel()
	e := &enroller{waits: true}
	socket, outcomes := serve(t, e)
	file, _ := anyFile(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-e.called
		cancel()
	}()
	if _, err := event.Enrol(ctx, socket, web(), file); !errors.Is(err, context.Canceled) {
		t.Errorf("Enrol = %v", err)
	}
	if o := <-outcomes; o.Err == nil || o.Pod.Name != "web-0" {
		t.Errorf("the outcome is %+v", o)
	}
}

// exchange sends bytes with descriptors, and returns the answer.
func exchange(t *testing.T, socket, text string, descriptors ...int) (status int, body string) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(text), rights, nil); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(read)
}

func post(path, body string) string {
	var b strings.Builder
	request, err := http.NewRequest(http.MethodPost, "http://agent"+path, strings.NewReader(body))
	if err == nil {
		err = request.Write(&b)
	}
	if err != nil {
		panic(err)
	}
	return b.String()
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	e := &enroller{decision: interception.Decision{Capture: true, Reason: "pod-label"}}
	socket, _ := serve(t, e)
	file, _ := anyFile(t)
	fd := int(file.Fd())
	const good = `{"namespace":"shop","name":"web-0"}`
	for name, test := range map[string]struct {
		text        string
		descriptors []int
		status      int
		want        string
	}{
		"another path":     {post("/v2/enrol", good), []int{fd}, 404, "not found"},
		"another method":   {strings.Replace(post("/v1/enrol", good), "POST", "PUT", 1), []int{fd}, 405, "Method Not Allowed"},
		"no descriptor":    {post("/v1/enrol", good), nil, 400, "carries no descriptor"},
		"two descriptors":  {post("/v1/enrol", good), []int{fd, fd}, 400, ""},
		"many descriptors": {post("/v1/enrol", good), []int{fd, fd, fd, fd, fd}, 400, ""},
		"no JSON":          {post("/v1/enrol", "funkyjunk"), []int{fd}, 400, "invalid character"},
		"an empty body":    {post("/v1/enrol", ""), []int{fd}, 400, "unexpected end"},
		"more than JSON":   {post("/v1/enrol", good+"{}"), []int{fd}, 400, "after top-level value"},
		"no pod":           {post("/v1/enrol", `{"namespace":"shop"}`), []int{fd}, 400, "does not name a pod"},
		"no address":       {post("/v1/enrol", `{"namespace":"a","name":"b","addresses":["10.0.0.300"]}`), []int{fd}, 400, "10.0.0.300"},
		"no time":          {post("/v1/enrol", `{"namespace":"a","name":"b","timeout":"-1s"}`), []int{fd}, 400, "-1s"},
		"a large body":     {post("/v1/enrol", `{"name":"`+strings.Repeat("x", 20000)+`"}`), []int{fd}, 400, "more than 16384 bytes"},
		"many addresses": {
			post("/v1/enrol", `{"namespace":"a","name":"b","addresses":[`+strings.Repeat(`"::1",`, 64)+`"::1"]}`), []int{fd}, 400, "65 addresses",
		},
		"no HTTP":                {"hello\r\n\r\n", nil, 400, ""},
		"Istio's without JSON":   {post("/cmdadd", "notjson"), nil, 400, "invalid character"},
		"Istio's with junk":      {post("/cmdadd", `{"Netns":"/x","PodName":"p","PodNamespace":"n"}funkyjunk`), nil, 400, "after top-level value"},
		"Istio's without a pod":  {post("/cmdadd", `{"Netns":"/proc/self/ns/net"}`), nil, 400, "does not name a pod"},
		"Istio's without a path": {post("/cmdadd", `{"PodName":"p","PodNamespace":"n"}`), nil, 400, "names no network namespace"},
		"Istio's wrong path":     {post("/cmdadd", `{"Netns":"/missing","PodName":"p","PodNamespace":"n"}`), nil, 400, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := exchange(t, socket, test.text, test.descriptors...)
			if status != test.status || !strings.Contains(body, test.want) {
				t.Errorf("the answer is %d %q, want %d with %q", status, body, test.status, test.want)
			}
		})
	}
	t.Cleanup(func() {
		if len(e.called) > 0 {
			t.Errorf("the agent was asked about %v", <-e.called)
		}
	})
}

// TestNoDescriptorIsLeft counts the open descriptors before and after requests of all kinds.
func TestNoDescriptorIsLeft(t *testing.T) { //nolint:paralleltest // it counts the process's descriptors
	count := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(open)
	}
	before := count()
	t.Run("requests", func(t *testing.T) {
		socket, outcomes := serve(t, &enroller{err: errors.New("no")})
		file, _ := anyFile(t)
		for _, text := range []string{post("/v1/enrol", `{"namespace":"a","name":"b"}`), post("/v1/enrol", "funkyjunk"), post("/cmdadd", "{}")} {
			exchange(t, socket, text, int(file.Fd()))
			<-outcomes
		}
		exchange(t, socket, post("/v2/none", ""), int(file.Fd()))
		left, _ := (&leaver{err: errors.New("no")}).serve(t)
		for _, body := range []string{`{"namespace":"a","name":"b"}`, "funkyjunk"} {
			exchange(t, left, post("/v1/leave", body), int(file.Fd()))
		}
		exchange(t, socket, "x", int(file.Fd()), int(file.Fd()), int(file.Fd()))
	})
	for start := time.Now(); count() > before; {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d descriptors are open, and %d were before", count(), before)
		}
	}
}

// TestIstio sends what Istio's plugin sends.
func TestIstio(t *testing.T) {
	t.Parallel()
	const body = `{"Netns":"/proc/self/ns/net","PodName":"p","PodNamespace":"n","IPs":[{"Interface":0,` +
		`"Address":{"IP":"10.0.0.2","Mask":"////AA=="},"Gateway":"10.0.0.1"},{"Interface":null,"Address":{"IP":"fd00::2","Mask":""},"Gateway":""}]}`
	for name, test := range map[string]struct {
		enroller enroller
		status   int
		want     string
	}{
		"captured":     {enroller{decision: interception.Decision{Capture: true, Reason: "pod-label"}}, 200, ""},
		"not captured": {enroller{decision: interception.Decision{Reason: "no-label"}}, 500, "pod n/p is not enrolled: "},
		"failed":       {enroller{err: errors.New("no proxy")}, 500, "no proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, _ := serve(t, &test.enroller)
			status, got := exchange(t, socket, post("/cmdadd", body))
			if status != test.status || !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("the answer is %d %q, want %d %q", status, got, test.status, test.want)
			}
			c := <-test.enroller.called
			want := event.Pod{Namespace: "n", Name: "p", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}}
			if !reflect.DeepEqual(c.pod, want) || c.deadline > 4500*time.Millisecond {
				t.Errorf("the agent was asked about %+v within %s, want %+v", c.pod, c.deadline, want)
			}
		})
	}
}
