// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// setPod has the proxies serve a pod in a namespace, and waits for that.
func setPod(t *testing.T, server *zds.Server, uid string, namespace *interception.Netns) {
	t.Helper()
	if err := server.Set(workload(uid), namespace); err != nil {
		t.Fatal(err)
	}
	await(t, server, uid)
}

// TestAddedTwice adds a pod again in the namespace in which it is served: its connections go on,
// and there is one set of listeners.
func TestAddedTwice(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	setPod(t, server, "a", namespace)
	capture(t, namespace)
	connection := older(t, pod)
	setPod(t, server, "a", namespace)
	lives(t, connection, true)
	connect(t, pod, of(proxy), 1)
}

// TestAddedElsewhere adds a pod again in another namespace, as when its sandbox was created anew:
// the proxy serves it there, and nowhere else.
func TestAddedElsewhere(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	former, first := newPod(t)
	latter, second := newPod(t)
	setPod(t, server, "a", first)
	capture(t, first)
	connection := older(t, former)
	setPod(t, server, "a", second)
	capture(t, second)
	lives(t, connection, false)
	if seen, err := former.Send(t.Context(), outward()); err != nil || seen.Verdict != dataplanetest.Refused {
		t.Errorf("in the former namespace: %s, %v, want that it is refused", seen, err)
	}
	connect(t, latter, of(proxy), 1)
}

// TestAddedDeletedAdded changes what is wanted twice, and waits for the last change alone.
func TestAddedDeletedAdded(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	server, _ := agent(t, socket)
	pod, namespace := newPod(t)
	capture(t, namespace)
	proxy := start(t, ProxyOptions{Socket: socket})
	for range 20 {
		if err := server.Set(workload("a"), namespace); err != nil {
			t.Fatal(err)
		}
		server.Delete("a")
	}
	setPod(t, server, "a", namespace)
	connect(t, pod, of(proxy), 1)
}

// TestKeptByTheNextAgent replaces the agent by one that knows of the pod and not of its namespace:
// connections through the proxy go on. Then it learns of the namespace, and they still do.
func TestKeptByTheNextAgent(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	first, end := agent(t, socket)
	proxy := start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	setPod(t, first, "a", namespace)
	capture(t, namespace)
	connection := older(t, pod)
	end()
	lives(t, connection, true)
	second, _ := agent(t, socket, workload("a"))
	await(t, second, "a")
	lives(t, connection, true)
	setPod(t, second, "a", namespace)
	lives(t, connection, true)
	connect(t, pod, of(proxy), 1)
}

// occupy listens on a port of the proxy in a pod's namespace, as a program of the pod may.
func occupy(t *testing.T, pod *dataplanetest.Pod) net.Listener {
	t.Helper()
	var taken net.Listener
	if err := pod.Do(func() (err error) {
		taken, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":15001")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() }) // the test may have closed it
	return taken
}

// again is the time after which a refused pod is sent again.
const again = 10 * time.Millisecond

// awaitRefusal waits until the proxy has refused pod a, and returns why.
func awaitRefusal(t *testing.T, seen <-chan zds.Event) string {
	t.Helper()
	for event := range seen {
		if errors.Is(event.Err, zds.ErrRefused) && event.Request.Workload.UID == "a" {
			return event.Err.Error()
		}
	}
	return ""
}

// TestPortIsTaken has a program of the pod listen on a port of the proxy. The pod is served when
// the port is free, in the namespace that was named last.
func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	server, socket, seen := events(t, zds.Options{Again: again})
	proxy := start(t, ProxyOptions{Socket: socket})
	former, first := newPod(t)
	occupy(t, former)
	if err := server.Set(workload("a"), first); err != nil {
		t.Fatal(err)
	}
	if why := awaitRefusal(t, seen); !strings.Contains(why, "15001") || !strings.Contains(why, "address already in use") {
		t.Errorf("refused with %q, want that port 15001 is in use", why)
	}
	latter, second := newPod(t)
	program := occupy(t, latter)
	if err := server.Set(workload("a"), second); err != nil { // while the former one is tried again
		t.Fatal(err)
	}
	awaitRefusal(t, seen)
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, server, "a")
	capture(t, second)
	connect(t, latter, of(proxy), 1)
}

// TestRefusedAndDeleted deletes a pod that could not be served: it is not served later.
func TestRefusedAndDeleted(t *testing.T) {
	t.Parallel()
	server, socket, seen := events(t, zds.Options{Again: again})
	proxy := start(t, ProxyOptions{Socket: socket})
	pod, namespace := newPod(t)
	program := occupy(t, pod)
	if err := server.Set(workload("a"), namespace); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, seen)
	server.Delete("a")
	await(t, server, "a")
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	_, other := newPod(t)
	setPod(t, server, "b", other) // a later request than any about a
	if proxy.Serves("a") || !proxy.Serves("b") {
		t.Errorf("it serves a: %t, b: %t, want b alone", proxy.Serves("a"), proxy.Serves("b"))
	}
}
