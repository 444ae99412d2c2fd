// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Process is a component that can be stopped and restarted. Its output is appended to a file.
type Process struct {
	// Name is the component's name, such as kube-apiserver.
	Name string

	program   string
	arguments []string
	log       string

	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{}
}

func newProcess(logs, name, program string, arguments ...string) *Process {
	return &Process{Name: name, program: program, arguments: arguments, log: filepath.Join(logs, name+".log")}
}

// Start starts the component. It does not wait until it is ready.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	// It lives until Stop, not until a context ends.
	p.command = exec.CommandContext(context.Background(), p.program, p.arguments...)
	p.command.Stdout, p.command.Stderr = log, log
	// Signals from the terminal are for the tests only.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	command, ended := p.command, make(chan struct{})
	p.ended = ended
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	return nil
}

// Stop kills the component and waits for its end. It may be started again.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return
	}
	_ = p.command.Process.Kill()
	<-p.ended
	p.command = nil
}

// Signal sends the component a signal.
func (p *Process) Signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return fmt.Errorf("signal %s: it isn't started", p.Name)
	}
	return p.command.Process.Signal(signal)
}

// Argument changes the value of a flag for the next start.
func (p *Process) Argument(flag, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, argument := range p.arguments {
		if name, _, _ := bytes.Cut([]byte(argument), []byte("=")); string(name) == flag {
			p.arguments[i] = flag + "=" + value
			return
		}
	}
	p.arguments = append(p.arguments, flag+"="+value)
}

// running returns an error, with the last lines of output, if the component has ended by itself.
func (p *Process) running() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %v; the end of %s:\n%s", p.Name, p.command.ProcessState, p.log, lastLines(p.log))
	default:
		return nil
	}
}

// lastLines returns the last lines of a file, or why it cannot be read.
func lastLines(name string) []byte {
	const most = 10
	text, err := os.ReadFile(name)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-most):], []byte("\n"))
}
