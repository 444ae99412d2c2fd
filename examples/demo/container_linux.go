// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// container is a process that runs a workload as a given user, in a network namespace.
type container struct {
	name    string
	command *exec.Cmd
	input   io.Closer
	orders  *json.Encoder
	reports *json.Decoder
}

type containerOptions struct {
	// self is the command line that starts this program again.
	self []string
	// as is the user and group of the process; nil keeps this process's.
	as *identity
	// within runs a function in the network namespace in which the process starts.
	within func(func() error) error
	// listeners are the container's sockets. If one is transparent, the process keeps
	// CAP_NET_ADMIN, which IP_TRANSPARENT requires.
	listeners []socketAddress
	log       *os.File
}

// startContainer starts a workload and waits until it listens.
func startContainer(ctx context.Context, name string, o containerOptions) (*container, error) {
	command := exec.CommandContext(ctx, o.self[0], append(o.self[1:], workloadCommand)...)
	command.Stderr = o.log
	if o.as != nil {
		// No supplementary groups: a container must not inherit root's.
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.as.uid), Gid: uint32(o.as.gid)}}
	}
	isTransparent := func(s socketAddress) bool { return s.Transparent }
	if o.as != nil && slices.ContainsFunc(o.listeners, isTransparent) {
		command.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := o.within(command.Start); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	c := &container{name: name, command: command, input: input, orders: json.NewEncoder(input), reports: json.NewDecoder(output)}
	var ready report
	err = errors.Join(c.orders.Encode(o.listeners), c.reports.Decode(&ready))
	if err == nil && ready.Failure != "" {
		err = errors.New(ready.Failure)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the %s: %w", name, err), c.stop())
	}
	return c, nil
}

// connect makes the container open a connection, and returns how it ended.
func (c *container) connect(p probe) (ending, error) {
	r, err := c.order(order{Network: p.network(), Source: p.source, Destination: p.destination})
	if err != nil {
		return ending{}, err
	}
	return ending{listener: r.Answer.Listener, original: r.Answer.Original, failure: r.Failure}, nil
}

// order has the process obey an order.
func (c *container) order(o order) (report, error) {
	var r report
	if err := errors.Join(c.orders.Encode(o), c.reports.Decode(&r)); err != nil {
		return report{}, fmt.Errorf("have the %s connect to %s: %w", c.name, o.Destination, err)
	}
	return r, nil
}

// stop closes the process's input, which ends it, and kills it if it does not end.
func (c *container) stop() error {
	_ = c.input.Close() // the process may have ended and closed it
	timer := time.AfterFunc(patience, func() { _ = c.command.Process.Kill() })
	defer timer.Stop()
	if err := c.command.Wait(); err != nil {
		return fmt.Errorf("stop the %s: %w", c.name, err)
	}
	return nil
}

// onAllAddresses returns sockets for each listener of one program, one for each family.
func onAllAddresses(listeners []trace.Listener, program string, ipv6 bool) []socketAddress {
	var sockets []socketAddress
	for _, l := range listeners {
		if l.Proxy != (program == proxy) {
			continue
		}
		v4, v6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
		// A socket on all addresses would not answer from the address that the redirected query
		// came to.
		if l.Protocol == interception.ProtocolUDP {
			v4, v6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
		}
		sockets = append(sockets, socketAt(l, v4))
		if ipv6 {
			sockets = append(sockets, socketAt(l, v6))
		}
	}
	return sockets
}

func socketAt(l trace.Listener, address netip.Addr) socketAddress {
	return socketAddress{
		Name: l.Name, Network: networkOf(l.Protocol, address),
		Address: netip.AddrPortFrom(address, uint16(l.Port)), Transparent: l.Transparent,
	}
}
