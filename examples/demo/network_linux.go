// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// addPod creates the pod's network.
func (d *demonstration) addPod(ctx context.Context) (string, error) {
	log, err := d.openLog("plugins")
	if err != nil {
		return "", err
	}
	d.runtime = newContainerRuntime(d.node, log)
	var addresses []netip.Prefix
	d.netns, addresses, err = d.attach(ctx, d.pod)
	return "the pod has " + list(addresses), err
}

// attach makes a network namespace and attaches it by libcni, as a container runtime does for a new
// pod. It returns the pod's addresses.
func (d *demonstration) attach(ctx context.Context, pod podManifest) (*sandbox.Namespace, []netip.Prefix, error) {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // crypto/rand never fails
	p := podSandbox{id: hex.EncodeToString(id), pod: pod}
	p.netnsPath = filepath.Join(d.node.netnsDir(), "cni-"+p.id[:8])
	netns, err := sandbox.NewNamespace(p.netnsPath)
	if err != nil {
		return nil, nil, err
	}
	d.later(netns.Close)
	if err := netns.Do(func() error {
		// Container runtimes let unprivileged users listen on low ports.
		return errors.Join(setSysctls("net/ipv4/ip_unprivileged_port_start", "0"), d.enableIPv6())
	}); err != nil {
		return nil, nil, err
	}
	result, err := d.runtime.add(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	d.attached = append(d.attached, p)
	var addresses []netip.Prefix
	for _, ip := range result.IPs {
		address, err := netip.ParsePrefix(ip.Address.String())
		if err != nil {
			return nil, nil, err
		}
		addresses = append(addresses, address)
	}
	return netns, addresses, nil
}

// list returns the addresses, separated by commas.
func list(addresses []netip.Prefix) string {
	var texts []string
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return strings.Join(texts, ", ")
}

func (d *demonstration) deletePods(ctx context.Context) (string, error) {
	var errs []error
	for _, p := range slices.Backward(d.attached) {
		errs = append(errs, d.runtime.remove(ctx, p))
	}
	return "", errors.Join(errs...)
}

// makePlan makes the plan that the plugin should have made, from the pod that the plugin requested.
func (d *demonstration) makePlan(ctx context.Context) (string, error) {
	pod, err := podsource.APIServer{Kubeconfig: d.node.kubeconfig()}.Pod(ctx, podsource.Ref{
		Namespace: d.pod.Namespace, Name: d.pod.Name, UID: d.pod.UID,
	})
	if err != nil {
		return "", err
	}
	mesh := istiomesh.Mesh()
	mesh.Policy = sidecar.Policy{ExcludeNamespaces: []string{"kube-system"}, AgentNamespace: "istio-system", AgentName: "istio-cni-node"}
	redirect, warnings, err := mesh.Dialect.Parse(pod)
	if err != nil {
		return "", err
	}
	decision := mesh.Decide(pod)
	detail := "the pod is left alone: " + decision.String()
	if decision.Capture {
		if d.plan, err = d.planFor(mesh, pod); err != nil {
			return "", err
		}
		detail = fmt.Sprintf("the pod is captured: plan %s", d.plan.Fingerprint())
	}
	for _, w := range warnings {
		detail += "\nwarning: " + w.String()
	}
	return detail, d.setScene(pod, redirect)
}

func (d *demonstration) planFor(mesh sidecar.Mesh, pod interception.Pod) (*interception.Plan, error) {
	netns, err := interception.OpenNetns(d.netns.Path(), interception.NetnsOptions{})
	if err != nil {
		return nil, err
	}
	defer netns.Close() //nolint:errcheck // only looked at
	facts, err := netfacts.Read(netns)
	if err != nil {
		return nil, err
	}
	planned, err := mesh.Plan(pod, facts)
	if err != nil {
		return nil, err
	}
	script, err := render.NFT(planned.Plan)
	if err != nil {
		return nil, err
	}
	return planned.Plan, errors.Join(d.node.note("plan", planned.Plan.String()), d.node.note("plan.nft", string(script)))
}

// setScene collects what decides which connections are worth showing.
func (d *demonstration) setScene(pod interception.Pod, redirect sidecar.Redirect) error {
	d.scene = scene{redirect: redirect, ports: d.pod.ports, validated: d.pod.validated()}
	d.scene.proxy = proxyOf(redirect)
	var err error
	if d.scene.application, err = applicationOf(pod, d.pod.application()); err != nil {
		return err
	}
	for _, beyond := range worldAddresses(d.ipv6) {
		s := side{world: beyond}
		if s.pod, err = d.addresses(podInterface, beyond); err != nil {
			return err
		}
		if s.loopback, err = d.addresses("lo", beyond); err != nil {
			return err
		}
		if len(s.pod) == 0 || len(s.loopback) == 0 {
			return fmt.Errorf("the pod has no %s address", interception.FamilyOf(beyond))
		}
		d.scene.sides = append(d.scene.sides, s)
	}
	return nil
}

// worldAddresses returns addresses outside the node (RFC 5737, RFC 3849).
func worldAddresses(ipv6 bool) []netip.Addr {
	addresses := []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, 10})}
	if ipv6 {
		addresses = append(addresses, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 0x10}))
	}
	return addresses
}

// addresses returns those of a link in the pod, of the same family as like, in the kernel's order.
func (d *demonstration) addresses(name string, like netip.Addr) ([]netip.Prefix, error) {
	var list []net.Addr
	err := d.netns.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err == nil {
			list, err = link.Addrs()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", name, err)
	}
	var prefixes []netip.Prefix
	for _, address := range list {
		prefix, err := netip.ParsePrefix(address.String())
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", name, err)
		}
		if prefix.Addr().Is4() == like.Is4() {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, nil
}
