// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// procRoot makes a proc file system whose process 1 has the network namespace at target.
func procRoot(t *testing.T, target string) NetnsOptions {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "1", "ns")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "net")); err != nil {
		t.Fatal(err)
	}
	return NetnsOptions{ProcRoot: root}
}

// startInNetns starts a process in its own network namespace, and in its own user namespace so that
// the test needs no root. The process ends with the test.
func startInNetns(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a process in new user and network namespaces: %v", err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return cmd.Process.Pid
}

func netnsPath(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

func TestOpenNetns(t *testing.T) {
	t.Parallel()
	pid := startInNetns(t)
	host := procRoot(t, "/proc/self/ns/net")
	ns, err := OpenNetns(netnsPath(pid), host)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenNetns(netnsPath(pid), host)
	if err != nil {
		t.Fatal(err)
	}
	own, err := HostNetns(NetnsOptions{ProcRoot: host.ProcRoot})
	if err != nil {
		t.Fatal(err)
	}
	if ns.ID() != again.ID() || ns.ID() == own.ID() || ns.ID() == (NetnsID{}) {
		t.Errorf("ids: %v and %v of one namespace, %v of another", ns.ID(), again.ID(), own.ID())
	}
	if want := fmt.Sprintf("net:[%d]", ns.ID().Inode); !strings.Contains(ns.String(), want) {
		t.Errorf("String() = %q, without %q", ns, want)
	}
	for _, open := range []*Netns{ns, again, own} {
		if err := open.Check(); err != nil {
			t.Errorf("Check of an open one: %v", err)
		}
		if err := open.Close(); err != nil {
			t.Error(err)
		}
		if err := open.Check(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Check of a closed one: %v, want os.ErrClosed", err)
		}
	}
}

func TestOpenNetnsRefuses(t *testing.T) {
	t.Parallel()
	pid := startInNetns(t)
	host := procRoot(t, "/proc/self/ns/net")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		options    NetnsOptions
		want       error
	}{
		{"the namespace of this process", "/proc/self/ns/net", procRoot(t, netnsPath(pid)), ErrHostNetns},
		{"the host's namespace", netnsPath(pid), procRoot(t, netnsPath(pid)), ErrHostNetns},
		{"when the host's is unknown", netnsPath(pid), NetnsOptions{ProcRoot: t.TempDir()}, fs.ErrNotExist},
		{"another kind of namespace", fmt.Sprintf("/proc/%d/ns/user", pid), host, ErrNotNetns},
		{"a file", file, host, ErrNotNetns},
		{"a fifo", fifo, host, ErrNotNetns},
		{"a directory", t.TempDir(), host, ErrNotNetns},
		{"nothing", filepath.Join(t.TempDir(), "gone"), host, fs.ErrNotExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ns, err := OpenNetns(tc.path, tc.options)
			if !errors.Is(err, tc.want) || ns != nil {
				t.Errorf("OpenNetns(%s) = %v, %v; want %v", tc.path, ns, err, tc.want)
			}
		})
	}
}

// The errors name the missing right, also for root without the right to trace processes.
func TestNetnsWithoutTheRightToSeeTheHosts(t *testing.T) {
	t.Parallel()
	file, err := os.Open(netnsPath(startInNetns(t)))
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		const nobody = 65534
		// The call fails without root, but then the process cannot see process 1 anyway.
		_, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		// The change of user cleared the flag for the whole process.
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 1, 0)
		_, err := NetnsFromFile(file, NetnsOptions{})
		refused <- err
		_, err = HostNetns(NetnsOptions{})
		refused <- err
	}()
	for _, of := range []string{"NetnsFromFile", "HostNetns"} {
		err := <-refused
		for _, remedy := range []string{"run as root, with the right to trace processes (CAP_SYS_PTRACE)", "appArmorProfile Unconfined"} {
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), remedy) {
				t.Errorf("%s = %v; want %s", of, err, remedy)
			}
		}
	}
}

// The error names the reason only once.
func TestNetnsSaysOnceThatItIsTheHosts(t *testing.T) {
	t.Parallel()
	pid := startInNetns(t)
	_, err := OpenNetns(netnsPath(pid), procRoot(t, netnsPath(pid)))
	if err == nil || strings.Count(err.Error(), "the host's") != 1 {
		t.Errorf("OpenNetns = %v", err)
	}
}

func TestNetnsFromFileClosesWhatItRefuses(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NetnsFromFile(file, NetnsOptions{}); !errors.Is(err, ErrNotNetns) {
		t.Errorf("NetnsFromFile = %v, want ErrNotNetns", err)
	}
	if err := file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the refused file is still open: Close = %v", err)
	}
}

func TestZeroNetnsPrints(t *testing.T) {
	t.Parallel()
	if got := new(Netns).String(); got != "no network namespace" {
		t.Errorf("String() = %q", got)
	}
}
