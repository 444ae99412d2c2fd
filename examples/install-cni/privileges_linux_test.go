// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeastPrivileges runs the daemon as the container in docs/operations.md does: as root, without
// capabilities, and with no way to gain any.
func TestLeastPrivileges(t *testing.T) {
	t.Parallel()
	program := build(t, installCNI)
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o600)
	daemon, log := n.startProgramBy(confined(), program, "msg=ready")
	wantPrivileges(t, daemon.Process.Pid, 0)

	n.write(n.netDir, "10-bridge.conflist", `{"name": "bridge", "cniVersion": "1.0.0", "plugins": [{"type": "bridge"}]}`, 0o644)
	n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-bridge.conflist") })
	n.remove(n.binDir, "istio-cni")
	n.until("the binary is back", n.binDir, func() bool {
		_, err := os.Lstat(filepath.Join(n.binDir, "istio-cni"))
		return err == nil
	})
	n.rotateToken("token-2")
	n.until("the kubeconfig has the new token", n.runDir, func() bool { return strings.Contains(n.read(n.runDir, "istio-cni-kubeconfig"), "token-2") })
	signalAndWait(t, daemon, syscall.SIGTERM, 0)

	uninstall, said := n.startProgramBy(confined(), program, "uninstalled", "uninstall")
	if err := uninstall.Wait(); err != nil {
		t.Errorf("uninstall: %v\n%s%s", err, said, log)
	}
	n.wantOnly("10-bridge.conflist") // another program had written it again
	n.wantPlugins("10-bridge.conflist", "bridge")
}

// TestPrivilegesForDirectoriesOfOthers has a directory that root needs a capability to write to;
// the error reports that.
func TestPrivilegesForDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	program := build(t, installCNI)
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	if err := os.Chmod(n.netDir, 0o555); err != nil {
		t.Fatal(err)
	}
	without, _ := n.startProgramBy(confined(), program, "with a security context that may write there")
	signalAndWait(t, without, syscall.SIGTERM, 0)
	if n.hasEntry("10-calico.conflist") {
		t.Error("it could write there nevertheless")
	}
	with, _ := n.startProgramBy(confined(unix.CAP_DAC_OVERRIDE), program, "msg=ready")
	wantPrivileges(t, with.Process.Pid, 1<<unix.CAP_DAC_OVERRIDE)
	signalAndWait(t, with, syscall.SIGTERM, 0)
	if !n.hasEntry("10-calico.conflist") {
		t.Error("there is no entry")
	}
}

// TestPrivilegesToChoose has the capabilities that a daemon needs to try the kernel's dataplanes;
// with fewer, it logs that and goes on.
func TestPrivilegesToChoose(t *testing.T) {
	t.Parallel()
	program := build(t, installCNI)
	const chosen, unknown = "chose how the plugin writes rules", "level=INFO msg=\"what the kernel supports is unknown"
	for name, test := range map[string]struct {
		kept []uintptr
		want string
	}{
		// To recognise the host's network namespace, the daemon looks at process 1, which in a
		// container is the daemon itself, but here is not.
		"enough":       {[]uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_PTRACE}, chosen},
		"no SYS_ADMIN": {[]uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_PTRACE}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			daemon, log := n.startProgramBy(confined(test.kept...), program, "msg=ready", "--dataplane=nftables")
			signalAndWait(t, daemon, syscall.SIGTERM, 0)
			if !strings.Contains(log.String(), test.want) {
				t.Errorf("the log doesn't say %q:\n%s", test.want, log)
			}
		})
	}
}

// confined starts a program as a container runtime does that drops all capabilities but these, and
// allows no escalation.
func confined(kept ...uintptr) func(*exec.Cmd) error {
	return func(command *exec.Cmd) error {
		result := make(chan error)
		go func() {
			// It is never unlocked: the thread ends with this goroutine.
			runtime.LockOSThread()
			err := dropPrivileges(kept)
			if err == nil {
				err = command.Start()
			}
			result <- err
		}()
		return <-result
	}
}

func dropPrivileges(kept []uintptr) error {
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if slices.Contains(kept, capability) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// wantPrivileges reads a process's capabilities from the kernel.
func wantPrivileges(t *testing.T, pid int, capabilities uint64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("\nCapEff:\t%016x\n", capabilities), fmt.Sprintf("\nCapPrm:\t%016x\n", capabilities), "\nNoNewPrivs:\t1\n", "\nUid:\t0\t0\t0\t0\n",
	} {
		if !strings.Contains(string(status), want) {
			t.Errorf("process %d lacks %q:\n%s", pid, want, status)
		}
	}
}
