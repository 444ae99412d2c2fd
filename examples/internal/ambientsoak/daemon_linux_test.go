// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"os/exec"
	"sync"
)

// daemon starts the node's programs, and starts them again when they end.
type daemon struct {
	node     *node
	commands map[string][]string

	mu       sync.Mutex
	running  map[string]*exec.Cmd
	ended    bool
	attended sync.WaitGroup
}

// newDaemon builds the programs.
func (n *node) newDaemon(server string) *daemon {
	n.t.Helper()
	roots := n.tree.Roots
	d := &daemon{node: n, running: map[string]*exec.Cmd{}, commands: map[string][]string{
		"node-watcher": {n.build("node-watcher"), "-node=" + nodeName, "-dir=" + n.dir, "-server=" + server, "-feed=" + n.path("feed.sock")},
		"node-ambient": {
			n.build("node-ambient"), "-feed=" + n.path("feed.sock"), "-events=" + n.path("pluginevent.sock"), "-proxy=" + n.path("ztunnel.sock"),
			"-journal=" + n.path("ambient"), "-proc=" + roots.Proc, "-netns=" + roots.Netns[1], "-results=" + roots.Results,
			`-settings={"dataplane":"nftables","drainTimeout":"1s"}`,
		},
	}}
	n.t.Cleanup(d.end)
	return d
}

func (d *daemon) start() {
	for name := range d.commands {
		d.attended.Go(func() {
			for d.run(name) {
			}
		})
	}
}

// run runs a program until it ends, and reports whether to run it again.
func (d *daemon) run(name string) bool {
	command := exec.Command(d.commands[name][0], d.commands[name][1:]...)
	command.Stdout, command.Stderr = d.node.log, d.node.log
	input, err := command.StdinPipe()
	d.mu.Lock()
	if d.ended || err != nil {
		d.mu.Unlock()
		return false
	}
	err = command.Start()
	d.running[name] = command
	d.mu.Unlock()
	if err != nil {
		d.node.t.Error(err)
		return false
	}
	_ = command.Wait() // it was killed
	_ = input.Close()
	return true
}

// kill kills a program (SIGKILL), which is then started again.
func (d *daemon) kill(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.running[name].Process.Kill(); err != nil {
		d.node.t.Error(err)
	}
	d.node.restarts++
}

// pid returns the id of the process of a program, or 0 if it was never started.
func (d *daemon) pid(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[name] == nil {
		return 0
	}
	return d.running[name].Process.Pid
}

func (d *daemon) end() {
	d.mu.Lock()
	d.ended = true
	for _, command := range d.running {
		_ = command.Process.Kill() // it may have ended
	}
	d.mu.Unlock()
	d.attended.Wait()
}
