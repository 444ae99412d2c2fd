// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// containerRuntime is the part of a container runtime that gives pods their networks: libcni, with
// a node's directories.
type containerRuntime struct {
	node node
	cni  libcni.CNI
}

// newContainerRuntime returns a runtime that logs the plugins' standard error.
func newContainerRuntime(node node, log io.Writer) containerRuntime {
	return containerRuntime{node, libcni.NewCNIConfigWithCacheDir([]string{node.binDir()}, node.cacheDir(),
		&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: log}})}
}

// podSandbox is a pod as the runtime knows it.
type podSandbox struct {
	id        string
	netnsPath string
	pod       podManifest
}

// loopbackList is the runtimes' own network for lo.
const loopbackList = `{"cniVersion": "1.0.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}`

// attachment is a network, and how the pod is attached to it.
type attachment struct {
	list *libcni.NetworkConfigList
	conf *libcni.RuntimeConf
}

// attachments returns those of lo and eth0, from the node's current configuration.
func (r containerRuntime) attachments(p podSandbox) ([]attachment, error) {
	loopback, err := libcni.NetworkConfFromBytes([]byte(loopbackList))
	if err != nil {
		return nil, err
	}
	files, err := libcni.ConfFiles(r.node.netDir(), []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no CNI configuration in %s", r.node.netDir())
	}
	primary, err := libcni.NetworkConfFromFile(slices.Min(files))
	if err != nil {
		return nil, err
	}
	conf := func(name string) *libcni.RuntimeConf {
		return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.netnsPath, IfName: name, Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.pod.Namespace},
			{"K8S_POD_NAME", p.pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.id},
			{"K8S_POD_UID", p.pod.UID},
		}}
	}
	return []attachment{{loopback, conf("lo")}, {primary, conf(podInterface)}}, nil
}

// add attaches the pod to its networks and returns the primary network's result.
func (r containerRuntime) add(ctx context.Context, p podSandbox) (*current.Result, error) {
	attachments, err := r.attachments(p)
	if err != nil {
		return nil, err
	}
	var result types.Result
	for _, a := range attachments {
		if result, err = r.cni.AddNetworkList(ctx, a.list, a.conf); err != nil {
			return nil, err
		}
	}
	return current.NewResultFromResult(result)
}

// remove detaches the pod, last network first.
func (r containerRuntime) remove(ctx context.Context, p podSandbox) error {
	attachments, err := r.attachments(p)
	if err != nil {
		return err
	}
	for _, a := range slices.Backward(attachments) {
		err = errors.Join(err, r.cni.DelNetworkList(ctx, a.list, a.conf))
	}
	return err
}
