// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/ambient"
)

// Variable is the environment variable by which a run of tests puts another proxy in the stand-in's
// place, such as a real ztunnel. Tests of behaviour pass its value as StartOptions.Command.
const Variable = "MESHCNI_ZTUNNEL"

// ErrOption means that a proxy that is a command cannot be given an option: what a foreign program
// does in that respect is up to it.
var ErrOption = errors.New("the option is for the stand-in in this process")

// ErrLoop means that a proxy would connect to itself, and take that connection again.
var ErrLoop = errors.New("a relay would come back")

// Instance is a running proxy: a [Proxy] in this process, or a command.
type Instance interface {
	// Close ends the proxy at once, with all its connections. The error is a breach of the protocol
	// by the agent, or says that the command has ended by itself.
	Close() error
	// Drain ends the proxy as [Proxy.Drain] does: a command by SIGTERM. The caller must close it.
	Drain(ctx context.Context)
}

// StartOptions are the settings of [Start].
type StartOptions struct {
	// ProxyOptions are the stand-in's. A command has Socket and the mark of Numbers from them. Its
	// listeners are transparent in any case. It refuses every other option with [ErrOption].
	ProxyOptions
	// Command is a program and its arguments, separated by spaces: no shell reads it. It takes the
	// settings of ztunnel from its environment. Empty means the stand-in in this process.
	Command string
	// Workloads are the pods that the proxy may meet: a real ztunnel serves only pods that it knows
	// from its control plane. They replace ProxyOptions.Tunnels.
	Workloads []Workload
	// Output gets what a command writes. Nil means that it is discarded.
	Output io.Writer
}

// Workload is a pod as the proxy knows it from its control plane.
type Workload struct {
	// Name, Namespace and ServiceAccount are the pod's, as the agent tells them.
	Name, Namespace, ServiceAccount string
	// Addresses are the pod's.
	Addresses []netip.Addr
	// Tunnel means that a proxy serves the pod, so that connections to it go through a tunnel.
	Tunnel bool
}

// Start starts the proxy for a test of behaviour: the command, or the stand-in in this process. The
// caller must close it. A command ends with ctx, at the latest.
func Start(ctx context.Context, o StartOptions) (Instance, error) {
	if o.Command != "" {
		return startCommand(ctx, o)
	}
	if len(o.Workloads) > 0 {
		o.Tunnels = tunnelled(o.Workloads)
	}
	return StartProxy(o.ProxyOptions)
}

// tunnelled returns a function that reports whether an address is that of a pod with a tunnel.
func tunnelled(workloads []Workload) func(netip.Addr) bool {
	return func(address netip.Addr) bool {
		return slices.ContainsFunc(workloads, func(w Workload) bool { return w.Tunnel && slices.Contains(w.Addresses, address) })
	}
}

// foreignTo returns an error that names an option that no command can be given.
func (o *StartOptions) foreignTo() error {
	ports := func(n ambient.Numbers) []any { return []any{n.OutboundPort, n.InboundPort, n.TunnelPort, n.DNSPort} }
	for name, given := range map[string]bool{
		"Tunnels": o.Tunnels != nil, "Resolvers": o.Resolvers != nil, "Refuse": o.Refuse != nil, "Strict": o.Strict, "Observe": o.Observe != nil,
		"Faults": o.Faults != Faults{}, "Numbers: its ports are Istio's": !slices.Equal(ports(o.Numbers), ports(ambient.IstioNumbers())),
	} {
		if given {
			return fmt.Errorf("start %s as the proxy: %w: %s", o.Command, ErrOption, name)
		}
	}
	return nil
}

// environment returns what ztunnel is configured by (src/config.rs at 284160d). Its control plane
// is the document in LOCAL_XDS, and FAKE_CA has it make its own certificates.
func (o *StartOptions) environment() ([]string, error) {
	control, err := controlPlane(o.Workloads)
	if err != nil {
		return nil, err
	}
	return []string{
		"PROXY_MODE=shared", "INPOD_UDS=" + o.Socket, "INPOD_PORT_REUSE=true",
		"PACKET_MARK=" + strconv.FormatUint(uint64(o.Numbers.ProxyMark.Value), 10),
		"FAKE_CA=true", "XDS_ADDRESS=", "LOCAL_XDS=" + control,
	}, nil
}

// localWorkload is a pod in the document that ztunnel takes for its control plane (LocalConfig of
// src/xds.rs at 3b80cf3, Workload of src/state/workload.rs at 3b80cf3): YAML, of which JSON is a
// part.
type localWorkload struct {
	UID            string              `json:"uid"`
	Name           string              `json:"name"`
	Namespace      string              `json:"namespace"`
	ServiceAccount string              `json:"serviceAccount"`
	Addresses      []netip.Addr        `json:"workloadIps"`
	Protocol       string              `json:"protocol"`
	Services       map[string]struct{} `json:"services"`
}

type localConfig struct {
	Workloads []localWorkload `json:"workloads"`
}

// controlPlane writes the document.
func controlPlane(workloads []Workload) (string, error) {
	config := localConfig{Workloads: []localWorkload{}}
	for _, w := range workloads {
		protocol := "TCP"
		if w.Tunnel {
			protocol = "HBONE"
		}
		config.Workloads = append(config.Workloads, localWorkload{
			UID: "Kubernetes//Pod/" + w.Namespace + "/" + w.Name, Name: w.Name, Namespace: w.Namespace, ServiceAccount: w.ServiceAccount,
			Addresses: append([]netip.Addr{}, w.Addresses...), Protocol: protocol, Services: map[string]struct{}{},
		})
	}
	text, err := json.Marshal(config)
	return string(text), err
}

// ParseWorkloads reads the workloads of ztunnel's LOCAL_XDS document, in JSON.
func ParseWorkloads(text []byte) ([]Workload, error) {
	var config localConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("the document for LOCAL_XDS: %w (the stand-in reads JSON alone)", err)
	}
	var all []Workload
	for _, w := range config.Workloads {
		all = append(all, Workload{
			Name: w.Name, Namespace: w.Namespace, ServiceAccount: w.ServiceAccount,
			Addresses: w.Addresses, Tunnel: strings.EqualFold(w.Protocol, "HBONE"),
		})
	}
	return all, nil
}
