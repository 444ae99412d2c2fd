// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/examples/internal/manifest"
	"github.com/meshcni/meshcni/interception"
)

// injectedPod is the default pod.
//
//go:embed pod.yaml
var injectedPod []byte

const (
	// maxPod is the largest object, in bytes, that etcd, and so any API server, stores.
	maxPod = 1536 << 10
	// ownUID is the UID for a pod without one.
	ownUID = "00000000-0000-4000-8000-000000000001"
	// standardPort is the application's port in a pod that declares no ports.
	standardPort interception.Port = 8080
)

// podManifest is a Pod as the API server returns it, and what this program must know to run its
// containers.
type podManifest struct {
	json                 []byte
	namespace, name, uid string
	// application is the container whose user runs the application.
	application string
	// ports are the TCP ports of all containers except the proxy's.
	ports []interception.Port
	// validated is true if istio-validation is one of the init containers.
	validated bool
}

// podDocument holds the fields of a Pod that this program reads; the plugin reads others.
type podDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
		UID          string `json:"uid"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork    bool              `json:"hostNetwork"`
		InitContainers []containerFields `json:"initContainers"`
		Containers     []containerFields `json:"containers"`
	} `json:"spec"`
}

type containerFields struct {
	Name  string `json:"name"`
	Ports []struct {
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
}

// readPod reads the file at path, YAML or JSON; an empty path stands for the program's own pod.
func readPod(path string) (podManifest, error) {
	if path == "" {
		return parsePod(injectedPod)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return podManifest{}, fmt.Errorf("read the pod: %w", err)
	}
	pod, err := parsePod(text)
	if err != nil {
		return podManifest{}, fmt.Errorf("%s: %w", path, err)
	}
	return pod, nil
}

func parsePod(text []byte) (podManifest, error) {
	if len(text) > maxPod {
		return podManifest{}, fmt.Errorf("it has %d bytes, and no API server stores a pod of more than %d", len(text), maxPod)
	}
	object, err := onlyPod(text)
	if err != nil {
		return podManifest{}, err
	}
	var document podDocument
	if err := json.Unmarshal(object, &document); err != nil {
		return podManifest{}, fmt.Errorf("not a Pod: %w", err)
	}
	if err := document.validate(); err != nil {
		return podManifest{}, err
	}
	pod := document.manifest()
	pod.json, err = complete(object, pod)
	return pod, err
}

// onlyPod returns the only pod of a manifest, or the pod that its only workload makes.
func onlyPod(text []byte) ([]byte, error) {
	read, err := manifest.Read(text)
	switch {
	case err != nil:
		return nil, err
	case len(read.Untyped) > 0:
		return nil, fmt.Errorf(`line %d: it is no Kubernetes object: it has no "kind"`, read.Untyped[0].Line)
	case len(read.Pods) > 1:
		var names []string
		for _, pod := range read.Pods {
			names = append(names, pod.Name)
		}
		return nil, fmt.Errorf("it holds %d pods: give one of %s", len(names), strings.Join(names, ", "))
	}
	return read.Pods[0].Object, nil
}

// validate returns an error if the pod cannot be shown.
func (d podDocument) validate() error {
	switch {
	case d.Kind != "Pod" || d.APIVersion != "v1":
		return fmt.Errorf("it is of kind %q, version %q, and not a Pod, v1: kubectl get pod NAME -o yaml prints one", d.Kind, d.APIVersion)
	case d.Metadata.Name != "" && d.Metadata.Name == d.Metadata.GenerateName:
		return errors.New("metadata.name is missing, as generateName stands for it until an API server has seen the pod: add a name")
	case d.Metadata.Name == "":
		return errors.New("metadata.name is missing: add one")
	case d.Spec.HostNetwork:
		return errors.New("spec.hostNetwork is true: such a pod has no network of its own that anything could be shown in")
	case len(d.Spec.Containers) == 0:
		return errors.New("spec.containers is empty: a pod has one container at least")
	}
	for _, c := range d.Spec.Containers {
		for _, p := range c.Ports {
			if p.ContainerPort < 1 || p.ContainerPort > 65535 {
				return fmt.Errorf("container %s: containerPort %d is not a port: write a number from 1 to 65535", c.Name, p.ContainerPort)
			}
		}
	}
	return nil
}

func (d podDocument) manifest() podManifest {
	pod := podManifest{namespace: d.Metadata.Namespace, name: d.Metadata.Name, uid: d.Metadata.UID}
	if pod.namespace == "" {
		pod.namespace = "default"
	}
	if pod.uid == "" {
		pod.uid = ownUID
	}
	for _, c := range d.Spec.Containers {
		if c.Name == proxyContainer {
			continue
		}
		if pod.application == "" {
			pod.application = c.Name
		}
		for _, p := range c.Ports {
			if p.Protocol == "" || p.Protocol == "TCP" {
				pod.ports = append(pod.ports, interception.Port(p.ContainerPort))
			}
		}
	}
	if len(pod.ports) == 0 {
		pod.ports = []interception.Port{standardPort}
	}
	pod.validated = slices.ContainsFunc(d.Spec.InitContainers, func(c containerFields) bool { return c.Name == "istio-validation" })
	return pod
}

// proxyContainer is the name of the sidecar proxy's container.
const proxyContainer = "istio-proxy"

// complete adds the fields that an API server sets, and leaves the rest of the object as it is.
func complete(object []byte, pod podManifest) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("not a Pod: %w", err)
	}
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("metadata is missing: add it")
	}
	metadata["namespace"], metadata["uid"] = pod.namespace, pod.uid
	return json.Marshal(fields)
}
