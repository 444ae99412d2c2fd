// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
)

// settings are what the environment asks for, by the names, forms and defaults of ztunnel
// (construct_config of src/config.rs at 284160d).
type settings struct {
	socket   string
	mark     interception.Mark
	deadline time.Duration // of a drain
	pods     []ambienttest.Workload
}

// The defaults that are ztunnel's own.
const (
	defaultSocket   = "/var/run/ztunnel/ztunnel.sock"
	defaultDeadline = 5 * time.Second
)

func readSettings(env environment) (settings, error) {
	s := settings{socket: defaultSocket, mark: ambient.IstioNumbers().ProxyMark.Value, deadline: defaultDeadline}
	if socket, is := env.getenv("INPOD_UDS"); is {
		s.socket = socket
	}
	var errs []error
	for name, only := range map[string]string{
		"PROXY_MODE": "shared", "INPOD_PORT_REUSE": "true", "ENABLE_ORIG_SRC": "true", "IPV6_ENABLED": "true", "ENABLE_PROXY": "true",
	} {
		if value, is := env.getenv(name); is && value != only {
			errs = append(errs, fmt.Errorf("%s is %q: the stand-in can only do what %q asks for", name, value, only))
		}
	}
	if text, is := env.getenv("PACKET_MARK"); is {
		mark, err := strconv.ParseUint(text, 10, 32)
		s.mark = interception.Mark(mark)
		errs = append(errs, in("PACKET_MARK", err))
	}
	var err error
	s.deadline, err = drainDeadline(env)
	errs = append(errs, err)
	s.pods, err = pods(env)
	return s, errors.Join(append(errs, err)...)
}

// in names the variable that an error is about.
func in(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// drainDeadline returns how long connections may go on after SIGTERM: a little less than Kubernetes
// waits before it kills.
func drainDeadline(env environment) (time.Duration, error) {
	const deadline, grace = "CONNECTION_TERMINATION_DEADLINE", "TERMINATION_GRACE_PERIOD_SECONDS"
	if text, is := env.getenv(deadline); is {
		d, err := time.ParseDuration(text)
		return d, in(deadline, err)
	}
	text, is := env.getenv(grace)
	if !is {
		return defaultDeadline, nil
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, in(grace, err)
	}
	reserve := 1
	if seconds > 10 {
		reserve = 5
	}
	return time.Duration(max(int(seconds)-reserve, 1)) * time.Second, nil
}

// pods returns the pods of the document that takes the control plane's place.
func pods(env environment) ([]ambienttest.Workload, error) {
	text, isText := env.getenv("LOCAL_XDS")
	path, isPath := env.getenv("LOCAL_XDS_PATH")
	switch {
	case isText && isPath:
		return nil, errors.New("LOCAL_XDS and LOCAL_XDS_PATH are both set: one of them may be")
	case isText:
		all, err := ambienttest.ParseWorkloads([]byte(text))
		return all, in("LOCAL_XDS", err)
	case isPath:
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, in("LOCAL_XDS_PATH", err)
		}
		all, err := ambienttest.ParseWorkloads(data)
		return all, in("LOCAL_XDS_PATH "+path, err)
	}
	return nil, nil
}

// systemResolvers returns the resolvers of the proxy's own container, which ztunnel forwards to.
func systemResolvers(path string) ([]netip.AddrPort, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	var all []netip.AddrPort
	const port = 53
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if address, err := netip.ParseAddr(fields[1]); err == nil && address.Zone() == "" { // others are not reached from a pod
			all = append(all, netip.AddrPortFrom(address, port))
		}
	}
	return all, nil
}

// tunnelled reports whether a pod has a tunnel.
func (s settings) tunnelled(address netip.Addr) bool {
	return slices.ContainsFunc(s.pods, func(w ambienttest.Workload) bool { return w.Tunnel && slices.Contains(w.Addresses, address) })
}
