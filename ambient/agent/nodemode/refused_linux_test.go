// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// meddled is a dataplane before whose Apply something happens while it is armed. An error of that
// is the kernel's refusal of the plan.
type meddled struct {
	backend

	armed  atomic.Bool
	meddle func(*interception.Plan) error
}

func (m *meddled) Apply(ctx context.Context, in *interception.Netns, plan *interception.Plan) error {
	if m.armed.Load() {
		if err := m.meddle(plan); err != nil {
			return err
		}
	}
	return m.backend.Apply(ctx, in, plan)
}

// has reports whether a plan has such an object or action.
func has[T any](plan *interception.Plan, is func(T) bool) bool {
	for _, o := range plan.Objects {
		if t, of := any(o).(T); of && is(t) {
			return true
		}
	}
	for _, rule := range plan.Rules() {
		if t, of := any(rule.Action).(T); of && is(t) {
			return true
		}
	}
	return false
}

// obstacle is why a proxy cannot have its interfaces, routes or rules.
type obstacle struct {
	way    ambient.Way
	meddle func(*node) func(*interception.Plan) error
	want   string // is in the error
}

// obstacles returns them by name.
func obstacles() map[string]obstacle {
	lacks := func(what string) error {
		return fmt.Errorf("the kernel has no %s: %w", what, interception.ErrUnsupported)
	}
	return map[string]obstacle{
		"a link vanishes in the middle": {ambient.WayVeth, func(n *node) func(*interception.Plan) error {
			return func(plan *interception.Plan) error {
				for address := range interception.ObjectsOf[interception.Address](plan) {
					if link, isProxys := strings.CutPrefix(string(address.Device), "pistioin"); isProxys {
						sandboxtest.Run(n.t, n.options.Host.File(), "", "ip", "link", "del", "istioin"+link)
						break
					}
				}
				return nil
			}
		}, "pistioin"},
		"a kernel without VXLAN": {ambient.WayVXLAN, func(*node) func(*interception.Plan) error {
			return func(plan *interception.Plan) error {
				if has(plan, func(l interception.Link) bool { return l.VXLAN != nil }) {
					return lacks("VXLAN")
				}
				return nil
			}
		}, "the kernel has no VXLAN"},
		"a kernel without TPROXY": {ambient.WayVeth, func(*node) func(*interception.Plan) error {
			return func(plan *interception.Plan) error {
				if has(plan, func(interception.TProxyTo) bool { return true }) {
					return lacks("TPROXY")
				}
				return nil
			}
		}, "the kernel has no TPROXY"},
	}
}

// TestFirstProxyIsRefused has a node whose first proxy cannot get its interfaces, routes or rules:
// the error names what is in the way, and the host and the proxy's namespace stay as they were. The
// proxy serves once nothing is in the way.
func TestFirstProxyIsRefused(t *testing.T) {
	t.Parallel()
	for name, of := range obstacles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, dataplane := newMeddled(t, of)
			web := n.pod()
			proxyPod, proxy := n.proxy()
			n.run()
			n.feed <- told(web)
			n.eventually("the host has its sets", func() bool { return strings.Contains(n.dump(), "meshed") })
			stood := n.dump()
			dataplane.armed.Store(true)
			n.feed <- ambient.Change{Pods: []ambient.Pod{proxyPod}}
			n.hostErrorIs(of.want)
			n.eventually("the host is as it was", func() bool { return !n.hasRules(proxyPod) && n.dump() == stood })
			n.wantMembers()
			n.wantWay(web, proxy, direct)
			dataplane.armed.Store(false)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			n.wantStatuses(web, ambient.StatusEnabled)
		})
	}
}

// TestNextProxyIsRefused has the same with a newer proxy: the former one serves on, as if there
// were no other, and the pods stay enabled.
func TestNextProxyIsRefused(t *testing.T) {
	t.Parallel()
	for name, of := range obstacles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, dataplane := newMeddled(t, of)
			web := n.pod()
			former, proxy := n.proxy()
			next, newer := n.proxy()
			n.run()
			n.feed <- told(former, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			stood := n.dump()
			dataplane.armed.Store(true)
			n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
			n.hostErrorIs(of.want)
			n.eventually("the host is as it was", func() bool { return !n.hasRules(next) && cmp.Diff(stood, n.dump()) == "" })
			n.wantWay(web, proxy, captured)
			dataplane.armed.Store(false)
			n.eventually("the newer proxy takes connections", n.holds(web, newer, captured))
			n.wantStatuses(web, ambient.StatusEnabled)
		})
	}
}

// TestFullDisk has no room for the state file: the error names the file, and the host stays as it
// was, first without any proxy, and then with one that a newer one cannot replace.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,nr_inodes=16,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.harm(syscall.Unmount(disk, syscall.MNT_DETACH)) })
	n.options.State = filepath.Join(disk, "node.json")
	empty := fill(t, disk)
	web := n.pod()
	former, proxy := n.proxy()
	next, newer := n.proxy()
	before := n.dump()
	n.run()
	n.feed <- told(former, web)
	n.hostErrorIs("no space left on device")
	n.hostErrorIs(n.options.State)
	n.hostErrorIs("see that there is room in the directory")
	if diff := cmp.Diff(before, n.dump()); diff != "" {
		t.Errorf("the host (-before +after):\n%s", diff)
	}
	n.wantWay(web, proxy, direct)
	empty()
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	stood := n.dump()
	empty = fill(t, disk)
	n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
	n.hostErrorIs(n.options.State)
	if diff := cmp.Diff(stood, n.dump()); diff != "" || n.hasRules(next) {
		t.Errorf("the host (-before +after):\n%s", diff)
	}
	n.wantWay(web, proxy, captured)
	empty()
	n.eventually("the newer proxy takes connections", n.holds(web, newer, captured))
	n.wantStatuses(web, ambient.StatusEnabled)
}

// fill makes files until a directory's disk is full, and empty removes them.
func fill(t *testing.T, disk string) (empty func()) {
	t.Helper()
	var files []string
	for {
		file := filepath.Join(disk, fmt.Sprint("filler-", len(files)))
		err := os.WriteFile(file, nil, 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			return func() {
				for _, file := range files {
					_ = os.Remove(file) // the test sees whether there is room
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
}

// newMeddled makes a node with an obstacle that is not armed yet.
func newMeddled(t *testing.T, of obstacle) (*node, *meddled) {
	t.Helper()
	dataplane := &meddled{backend: backends(t)["nftables"]}
	n := newNode(t, dataplane)
	n.options.Way, dataplane.meddle = of.way, of.meddle(n)
	return n, dataplane
}

// wantStatuses tests which statuses a pod has been given.
func (n *node) wantStatuses(pod ambient.Pod, want ...ambient.Status) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if got := n.statuses[pod.UID]; !slices.Equal(got, want) {
		n.t.Errorf("the pod has had the statuses %q, want %q", got, want)
	}
}
