// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// InitName is the name of a node's first process; its argument is the node's name.
const InitName = "meshcni-e2e-node"

// firstImage is the file descriptor of the first archive of images. Archives are passed open,
// because the node does not see the machine's /run.
const firstImage = 3

// Main runs a node's first process, if this process is one, and then does not return. Programs that
// use the package call it before anything else.
func Main() {
	if os.Args[0] != InitName {
		return
	}
	fmt.Fprintln(os.Stderr, runNode())
	os.Exit(1)
}

// supervisor is the first process of a node. It must reap orphaned processes, so it never waits for
// one particular process.
type supervisor struct {
	boot boot

	mu      sync.Mutex
	waiting map[int]chan<- syscall.WaitStatus
}

// runNode sets the node up, starts its components, and keeps them running. It returns only on an
// error.
func runNode() error {
	s := supervisor{waiting: map[int]chan<- syscall.WaitStatus{}}
	if err := json.NewDecoder(os.Stdin).Decode(&s.boot); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	if err := setUpNode(s.boot); err != nil {
		return err
	}
	path := strings.Join(append(s.boot.Programs, os.Getenv("PATH")), ":")
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	for name, text := range s.boot.Files {
		if err := os.WriteFile(filepath.Join(s.boot.Directory, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	go s.startAll()
	return s.reap()
}

// startAll starts the components one after the other, in the order of their dependencies.
func (s *supervisor) startAll() {
	go s.keep("containerd", "containerd", "--config", filepath.Join(s.boot.Directory, "containerd.toml"))
	awaitSocket("/run/containerd/containerd.sock")
	for i, archive := range s.boot.Images {
		fd := firstImage + i
		syscall.CloseOnExec(fd)
		if !s.once("images", "ctr", "-n", "k8s.io", "images", "import", fmt.Sprintf("/proc/1/fd/%d", fd)) {
			fmt.Fprintf(os.Stderr, "%s has no pod without the images of %s\n", s.boot.Name, archive)
			os.Exit(1)
		}
	}
	go s.keep("kube-proxy", s.boot.Kubernetes, append([]string{"kube-proxy"}, s.boot.Proxy...)...)
	s.keep("kubelet", s.boot.Kubernetes, append([]string{"kubelet"}, s.boot.Kubelet...)...)
}

// keep runs a component, and restarts it a second after it ends.
func (s *supervisor) keep(name, program string, arguments ...string) {
	for {
		s.once(name, program, arguments...)
		time.Sleep(time.Second)
	}
}

// once runs a program, and logs how it ended if it failed.
func (s *supervisor) once(name, program string, arguments ...string) (well bool) {
	status, err := s.run(name, program, arguments...)
	well = err == nil && status == 0
	if !well {
		fmt.Fprintf(os.Stderr, "%s %s ended: exit status %d, signal %d, error %v\n",
			time.Now().Format(time.RFC3339Nano), name, status.ExitStatus(), status.Signal(), err)
	}
	return well
}

// run runs a program to its end. Its output goes to the file NODE-NAME.log.
func (s *supervisor) run(name, program string, arguments ...string) (syscall.WaitStatus, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return 0, err
	}
	file := filepath.Join(s.boot.Logs, s.boot.Name+"-"+name+".log")
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	ended := make(chan syscall.WaitStatus, 1)
	s.mu.Lock()
	pid, err := syscall.ForkExec(path, append([]string{program}, arguments...), &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{os.Stdin.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err == nil {
		s.waiting[pid] = ended
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return <-ended, nil
}

// reap waits for all orphaned processes of the node.
func (s *supervisor) reap() error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch err {
		case nil:
		case syscall.EINTR:
			continue
		case syscall.ECHILD: // no child at present
			time.Sleep(10 * time.Millisecond)
			continue
		default:
			return fmt.Errorf("wait for processes: %w", err)
		}
		s.mu.Lock()
		ended, found := s.waiting[pid]
		delete(s.waiting, pid)
		s.mu.Unlock()
		if found {
			ended <- status
		}
	}
}

// awaitSocket waits until a process accepts connections on the socket.
func awaitSocket(path string) {
	for {
		connection, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
		if err == nil {
			_ = connection.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
