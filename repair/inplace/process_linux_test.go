// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

// startProcess starts a process in namespaces of its own, which waits until it is killed.
func startProcess(t *testing.T, namespaces uintptr) *exec.Cmd {
	t.Helper()
	process := exec.CommandContext(t.Context(), "cat")
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if namespaces&unix.CLONE_NEWUSER != 0 {
		process.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
		process.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(process) })
	return process
}

// end may be called twice.
func end(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// reuse starts a process with the id of one that has ended (proc_sys_kernel(5), ns_last_pid).
func reuse(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		process := startProcess(t, unix.CLONE_NEWNET)
		if process.Process.Pid == pid {
			return
		}
		end(process)
	}
	t.Fatalf("process id %d isn't given again", pid)
}

// TestProcessIDReused: an opened process shows nothing of a later process with the same id, though
// the path leads to it.
func TestProcessIDReused(t *testing.T) {
	t.Parallel()
	first := startProcess(t, unix.CLONE_NEWNET)
	pid := first.Process.Pid
	opened, err := inplace.OpenProcess("/proc", pid)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := opened.Look(); err != nil {
		t.Fatalf("while it lives: %v", err)
	}
	end(first)
	reuse(t, pid)
	if err := opened.Look(); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the directory of an ended process shows another: %v", err)
	}
	another, err := inplace.OpenProcess("/proc", pid)
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	if err := another.Look(); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

// TestUserNamespace repairs a pod with a user namespace of its own, which owns its network
// namespace.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	holder := startProcess(t, unix.CLONE_NEWUSER|unix.CLONE_NEWNET)
	path := "/proc/" + strconv.Itoa(holder.Process.Pid) + "/ns/net"
	addAddress(t, path)
	n, p := newNode(t), pod()
	n.process(path, cgroupOf(uid, "crio"))
	n.result(path, uid) // by process id, which is not followed
	b := newBench(t, n, choice.NFTables)
	f := b.expect(t, p, repair.Broken, repair.ReasonNoRules)
	if err := b.Repair(t.Context(), p, f.Plan); err != nil {
		t.Fatal(err)
	}
	b.expect(t, p, repair.Healthy, repair.ReasonAsRecorded)
}

// addAddress adds the pod's addresses to lo of a namespace.
func addAddress(t *testing.T, path string) {
	t.Helper()
	ns, err := netns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	lo, err := handle.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := handle.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, a := range pod().IPs {
		prefix, err := a.Prefix(a.BitLen())
		if err != nil {
			t.Fatal(err)
		}
		if err := handle.AddrAdd(lo, &netlink.Addr{IPNet: sandbox.IPNet(prefix)}); err != nil {
			t.Fatal(err)
		}
	}
}
