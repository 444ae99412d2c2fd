// SPDX-License-Identifier: Apache-2.0

package victim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors of a victim: it reports by one, and reads the command to go on from the other.
const (
	mouth = 3
	ear   = 4
)

// The reports of a victim. The text of a failure follows it.
const (
	ready  = "ready"
	done   = "done"
	failed = "failed "
)

// Serve reports that this process is about to work, waits for the command to go on, works, and
// reports the result. The error concerns only this communication.
func Serve(work func() error) error {
	for _, fd := range []int{mouth, ear} {
		unix.CloseOnExec(fd) // else a child process would seem to be the victim
	}
	says, hears := os.NewFile(mouth, "mouth"), os.NewFile(ear, "ear")
	if _, err := fmt.Fprintln(says, ready); err != nil {
		return err
	}
	if _, err := io.ReadFull(hears, make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the word to go on: %w", err)
	}
	answer := done
	if err := work(); err != nil {
		answer = failed + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	_, err := fmt.Fprintln(says, answer)
	return err
}

// Process is a victim that waits for the command to go on.
type Process struct {
	command *exec.Cmd
	says    *bufio.Reader
	ends    []*os.File // to close: the ends of the communication
	files   string     // the directory for its temporary files, which it can't remove when it is killed
	output  *bytes.Buffer
}

// Start starts a copy of this program that runs one test, and returns when it is about to work. The
// caller must call Run. The process is killed when ctx ends.
func Start(ctx context.Context, test, task string) (_ *Process, err error) {
	heard, says, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	hears, told, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, heard.Close(), says.Close())
	}
	p := &Process{output: &bytes.Buffer{}, says: bufio.NewReader(heard), ends: []*os.File{heard, told}}
	p.command = exec.CommandContext(ctx, "/proc/self/exe", arguments(test)...)
	if p.files, err = os.MkdirTemp("", "victim"); err != nil {
		return nil, errors.Join(err, says.Close(), hears.Close(), p.close())
	}
	p.command.Env = append(os.Environ(), variable+"="+task, "TMPDIR="+p.files)
	p.command.Stdout, p.command.Stderr = p.output, p.output
	p.command.ExtraFiles = []*os.File{says, hears}
	p.command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	err = errors.Join(p.command.Start(), says.Close(), hears.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a copy of this program: %w", err), p.close())
	}
	if word, err := p.hear(); err != nil || word != ready {
		kill(p.command.Process.Pid, true)
		err = errors.Join(err, p.command.Wait(), p.close())
		return nil, fmt.Errorf("the copy of this program says %q: %w\n%s", word, err, p.output)
	}
	return p, nil
}

// kill kills a process, alone or with its child processes. It ignores a process that has ended.
func kill(pid int, group bool) {
	if group {
		pid = -pid
	}
	_ = unix.Kill(pid, unix.SIGKILL)
}

// hear returns a line; io.EOF when the process has ended without another one.
func (p *Process) hear() (string, error) {
	line, err := p.says.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (p *Process) close() error {
	errs := []error{removeAll(p.files)}
	for _, end := range p.ends {
		errs = append(errs, end.Close())
	}
	return errors.Join(errs...)
}

// removeAll removes a directory, in which namespaces may be mounted; an empty path means none.
func removeAll(directory string) error {
	if directory == "" {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], directory+"/") { // proc_pid_mountinfo(5)
			errs = append(errs, unix.Unmount(fields[4], unix.MNT_DETACH))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(directory))...)
}

// expects reports whether a process that did not say how its work went has ended as it should.
func (o Ending) expects(ended *os.ProcessState) bool {
	return o.When != nil || o.Itself && ended.ExitCode() == -1 // by a signal
}

// Run sends the command to go on, and returns when the process has ended. If its work failed, Run
// returns an error.
func (p *Process) Run(o Ending) (_ End, err error) {
	defer func() { err = errors.Join(err, p.close()) }()
	began := time.Now()
	if _, err := p.ends[1].Write([]byte{1}); err != nil {
		kill(p.command.Process.Pid, true)
		return End{}, errors.Join(err, p.command.Wait())
	}
	if o.When != nil {
		o.When()
		kill(p.command.Process.Pid, o.Group)
	}
	word, said := p.hear()
	end := End{Killed: said != nil, Took: time.Since(began)}
	err = p.command.Wait()
	switch {
	// Its exit status then means nothing more.
	case o.expects(p.command.ProcessState) && errors.Is(said, io.EOF):
		return end, nil
	// It was killed after its end.
	case said == nil && word == done && (err == nil || o.When != nil):
		return end, nil
	case said == nil && word != done:
		return end, fmt.Errorf("the process %s", word)
	}
	return end, fmt.Errorf("the process ends in another way: %w\n%s", errors.Join(said, err), p.output)
}
