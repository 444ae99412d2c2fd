// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// worldFile describes a [trace.World] in JSON.
type worldFile struct {
	Namespaces []namespaceFile `json:"namespaces"`
	// Wires are lists of links, such as ["pod eth0", "node veth1"].
	Wires [][]string `json:"wires"`
}

// namespaceFile describes a [trace.Namespace]. It has lo without being told.
type namespaceFile struct {
	Name      string            `json:"name"`
	Links     []linkFile        `json:"links"`
	Listeners []listenerFile    `json:"listeners"`
	Plans     []json.RawMessage `json:"plans"` // each a plan, or the name of a file with one
	LiveSets  []liveSetFile     `json:"liveSets"`
	Forwards  bool              `json:"forwards"`
	Routes    []routeFile       `json:"routes"`
	Sysctls   map[string]int    `json:"sysctls"`
}

type linkFile struct {
	Name      interception.Interface `json:"name"`
	Addresses []netip.Prefix         `json:"addresses"`
	VXLAN     *interception.VXLAN    `json:"vxlan"`
	Geneve    *interception.Geneve   `json:"geneve"`
}

type listenerFile struct {
	Name        string            `json:"name"`
	Protocol    string            `json:"protocol"` // tcp, which "" stands for, or udp
	Address     netip.Addr        `json:"address"`
	Port        interception.Port `json:"port"`
	Proxy       bool              `json:"proxy"`
	Transparent bool              `json:"transparent"`
	Mark        interception.Mark `json:"mark"`
}

type liveSetFile struct {
	Owner   interception.Owner   `json:"owner"`
	Name    interception.SetName `json:"name"`
	Members []netip.Prefix       `json:"members"`
}

type routeFile struct {
	Destination netip.Prefix           `json:"destination"`
	Device      interception.Interface `json:"device"`
	Gateway     netip.Addr             `json:"gateway"`
}

// readWorld reads a description of a world. Names of files in it are relative to it.
func readWorld(command *cobra.Command, name string) (trace.World, error) {
	text, err := readText(command, name)
	if err != nil {
		return trace.World{}, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var file worldFile
	if err := decoder.Decode(&file); err != nil {
		return trace.World{}, fmt.Errorf("%s: it describes no world: %w: see the example of \"meshplan trace --help\"", name, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return trace.World{}, fmt.Errorf("%s: there is more after the world: write one world into a file", name)
	}
	var world trace.World
	for _, n := range file.Namespaces {
		namespace, err := n.namespace(filepath.Dir(name))
		if err != nil {
			return trace.World{}, fmt.Errorf("%s: namespace %q: %w", name, n.Name, err)
		}
		world.Namespaces = append(world.Namespaces, namespace)
	}
	for i, ends := range file.Wires {
		var wire trace.Wire
		for _, end := range ends {
			namespace, link, ok := strings.Cut(end, " ")
			if !ok {
				return trace.World{}, fmt.Errorf("%s: wire %d: %q is no link of a namespace: write \"pod eth0\"", name, i, end)
			}
			wire.Ends = append(wire.Ends, trace.WireEnd{Namespace: namespace, Link: interception.Interface(link)})
		}
		world.Wires = append(world.Wires, wire)
	}
	if err := world.Validate(); err != nil {
		return trace.World{}, fmt.Errorf("%s: %w", name, err)
	}
	return world, nil
}

func (n namespaceFile) namespace(directory string) (trace.Namespace, error) {
	made := trace.Namespace{Name: n.Name, Links: []trace.Link{trace.Loopback()}, Forwards: n.Forwards, Sysctls: n.Sysctls}
	for _, l := range n.Links {
		made.Links = append(made.Links, trace.Link(l))
	}
	for _, l := range n.Listeners {
		protocol, known := map[string]interception.Protocol{
			"": interception.ProtocolTCP, "tcp": interception.ProtocolTCP, "udp": interception.ProtocolUDP,
		}[l.Protocol]
		if !known {
			return trace.Namespace{}, fmt.Errorf("listener %q: protocol %q is neither tcp nor udp", l.Name, l.Protocol)
		}
		made.Listeners = append(made.Listeners, trace.Listener{
			Name: l.Name, Proxy: l.Proxy, Protocol: protocol, Address: l.Address, Port: l.Port, Transparent: l.Transparent, Mark: l.Mark,
		})
	}
	for _, s := range n.LiveSets {
		made.LiveSets = append(made.LiveSets, trace.LiveSet{Owner: s.Owner, Name: s.Name, Members: interception.Prefixes(s.Members...)})
	}
	for _, r := range n.Routes {
		made.Routes = append(made.Routes, interception.Route{Destination: r.Destination, Device: r.Device, Gateway: r.Gateway})
	}
	for i, text := range n.Plans {
		plan, err := readPlan(directory, text)
		if err != nil {
			return trace.Namespace{}, fmt.Errorf("plan %d: %w", i, err)
		}
		made.Plans = append(made.Plans, plan)
	}
	return made, nil
}

// readPlan reads a plan from its text, or from the file that the text names.
func readPlan(directory string, text json.RawMessage) (*interception.Plan, error) {
	if string(bytes.TrimSpace(text)) == "null" {
		return nil, errors.New("it is null: write a plan, or the name of a file with one, or leave it out")
	}
	var file string
	if err := json.Unmarshal(text, &file); err == nil {
		if !filepath.IsAbs(file) {
			file = filepath.Join(directory, file)
		}
		if text, err = os.ReadFile(file); err != nil { //nolint:gosec // the user names the file
			return nil, err
		}
	}
	plan := &interception.Plan{}
	if err := json.Unmarshal(text, plan); err != nil {
		return nil, err
	}
	return plan, nil
}
