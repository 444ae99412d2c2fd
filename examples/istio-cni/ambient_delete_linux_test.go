// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

// mustDelete is a DEL of the pod shop/web-0, which succeeds.
func (n *node) mustDelete(runtime *libcni.RuntimeConf) {
	n.t.Helper()
	if err := n.cni().DelNetworkList(n.t.Context(), n.list(previous), runtime); err != nil {
		n.t.Fatal(err)
	}
}

// TestAmbientDEL tells the agent which sandbox of which pod ends: by its namespace if the runtime
// names one, and by the container's id.
func TestAmbientDEL(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]func(*node) string{
		"with its namespace":    func(n *node) string { return n.netns.Path() },
		"without":               func(*node) string { return "" },
		"with one that is gone": func(n *node) string { return n.runDir + "/gone" },
		"with the host's":       func(*node) string { return "/proc/1/ns/net" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.startAgent(enrolling())
			runtime := n.runtime("shop", "web-0")
			runtime.NetNS = path(n)
			var inside, want syscall.Stat_t
			if err := syscall.Stat(n.netns.Path(), &inside); err != nil {
				t.Fatal(err)
			}
			if runtime.NetNS == n.netns.Path() {
				want.Ino = inside.Ino
			}
			pods, inodes := a.departed()
			for len(pods) == 0 { // a machine that is very busy may take longer than DEL waits
				n.mustAdd() // the runtime passes the result of the last ADD
				n.mustDelete(runtime)
				pods, inodes = a.departed()
			}
			if !reflect.DeepEqual(pods[0], web("10.244.1.6", "fd00::6")) || inodes[0] != want.Ino {
				t.Errorf("the agent is told of %+v in %d, want the pod in %d", pods[0], inodes[0], want.Ino)
			}
		})
	}
}

// TestAmbientDELSucceeds whatever becomes of the agent. A DEL that waited for an answer that never
// comes would never end.
func TestAmbientDELSucceeds(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*node){
		"the agent is absent": func(*node) {},
		"the agent is dead": func(n *node) {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.socket(), Net: "unix"})
			if err != nil {
				n.t.Fatal(err)
			}
			listener.SetUnlinkOnClose(false)
			if err := listener.Close(); err != nil {
				n.t.Fatal(err)
			}
			if _, err := os.Stat(n.socket()); err != nil {
				n.t.Fatal(err)
			}
		},
		"the agent accepts nothing": func(n *node) {
			listener, err := net.Listen("unix", n.socket())
			if err != nil {
				n.t.Fatal(err)
			}
			n.t.Cleanup(func() { _ = listener.Close() }) // nothing was written
		},
		"the agent answers nothing": func(n *node) {
			hung := n.t.Context()
			n.startAgent(&agent{ending: func(context.Context) (bool, error) {
				<-hung.Done()
				return false, hung.Err()
			}})
		},
		"the agent fails": func(n *node) {
			n.startAgent(&agent{ending: func(context.Context) (bool, error) { return false, errors.New("the kernel refuses") }})
		},
		"the agent panics": func(n *node) {
			n.startAgent(&agent{ending: func(context.Context) (bool, error) { panic("nobody expects this") }})
		},
		"the agent stops": func(n *node) {
			n.startAgent(&agent{ending: func(context.Context) (bool, error) {
				return false, &event.Error{Code: event.CodeStopped, Message: "it ends"}
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			prepare(n)
			for range 2 {
				n.mustDelete(n.runtime("shop", "web-0"))
			}
		})
	}
}

// TestAmbientDELOfOtherConfigurations tells the agent of no pod that ADD would not ask about, and
// of each other one, although a setting that only ADD needs is wrong.
func TestAmbientDELOfOtherConfigurations(t *testing.T) {
	t.Parallel()
	for settings, told := range map[string]bool{
		`{}`: true, `{"enablement_selectors": [{"podSelektor": {}}]}`: true, `{"ambient_enabled": false}`: false, `{"ambient_enabled": null}`: false,
		annotated(`{"sidecar.istio.io/status": "{}"}`): false, annotated(`{"a": "b"}`): true,
	} {
		n := newNode(t)
		a := n.startAgent(enrolling())
		list, cni := n.list(previous, settings), n.cni()
		for again := true; again; { // see TestAmbientDEL
			if err := cni.DelNetworkList(t.Context(), list, n.runtime("shop", "web-0")); err != nil {
				t.Fatal(err)
			}
			pods, _ := a.departed()
			again = told && len(pods) == 0
		}
		if !told && a.outcomes > 0 {
			t.Errorf("%s: the agent was told", settings)
		}
	}
}
