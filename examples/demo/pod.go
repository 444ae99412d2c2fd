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
	"github.com/meshcni/meshcni/interception/podsource"
)

// injectedPod is the default pod.
//
//go:embed pod.yaml
var injectedPod []byte

// ambientPods are the pods for ambient mode.
//
//go:embed ambient.yaml
var ambientPods []byte

const (
	// ownUID is the UID for a pod without one.
	ownUID = "00000000-0000-4000-8000-000000000001"
	// standardPort is the application's port in a pod that declares no ports.
	standardPort interception.Port = 8080
	// proxyContainer is the name of the sidecar proxy's container.
	proxyContainer = "istio-proxy"
)

// podManifest is a Pod as the API server returns it, and what this program must know to run its
// containers.
type podManifest struct {
	interception.Pod

	json []byte
	// ports are the TCP ports of all containers except the proxy's.
	ports []interception.Port
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
	object, err := onlyPod(text)
	if err != nil {
		return podManifest{}, err
	}
	return parseObject(object)
}

// readAmbientPods returns the pods for ambient mode: two that are to be enrolled, and one that opts
// out.
func readAmbientPods() ([]podManifest, error) {
	read, err := manifest.Read(ambientPods)
	if err != nil {
		return nil, err
	}
	var pods []podManifest
	for _, object := range read.Pods {
		pod, err := parseObject(object.Object)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// parseObject reads a Pod, in JSON.
func parseObject(object []byte) (podManifest, error) {
	var pod podManifest
	var err error
	if pod.json, err = complete(object); err != nil {
		return podManifest{}, err
	}
	if pod.Pod, err = podsource.ParsePod(pod.json); err != nil {
		return podManifest{}, err
	}
	switch {
	case pod.Name == "":
		return podManifest{}, errors.New("metadata.name is missing: add one")
	case pod.HostNetwork:
		return podManifest{}, errors.New("spec.hostNetwork is true: such a pod has no network of its own, so there is nothing to show")
	case len(pod.Containers) == 0:
		return podManifest{}, errors.New("spec.containers is empty: a pod has one container at least")
	}
	pod.ports, err = portsOf(pod.json)
	return pod, err
}

// onlyPod returns the only pod of a manifest, or the pod that its only workload makes.
func onlyPod(text []byte) ([]byte, error) {
	read, err := manifest.Read(text)
	switch {
	case err != nil:
		return nil, err
	case len(read.Untyped) > 0:
		return nil, fmt.Errorf(`line %d: it is not a Kubernetes object: it has no "kind"`, read.Untyped[0].Line)
	case len(read.Pods) > 1:
		var names []string
		for _, pod := range read.Pods {
			names = append(names, pod.Name)
		}
		return nil, fmt.Errorf("it holds %d pods: give one of %s", len(names), strings.Join(names, ", "))
	}
	return read.Pods[0].Object, nil
}

// complete adds the fields that an API server sets, and leaves the rest of the object as it is.
func complete(object []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("not a Pod: %w", err)
	}
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	for key, value := range map[string]string{"namespace": "default", "uid": ownUID} {
		if metadata[key] == nil || metadata[key] == "" {
			metadata[key] = value
		}
	}
	return json.Marshal(fields)
}

// application returns the name of the container whose user runs the application; "" without one.
func (p podManifest) application() string {
	for _, c := range p.Containers {
		if !c.Init && c.Name != proxyContainer {
			return c.Name
		}
	}
	return ""
}

// validated reports whether istio-validation is one of the init containers.
func (p podManifest) validated() bool {
	return slices.ContainsFunc(p.Containers, func(c interception.Container) bool { return c.Init && c.Name == "istio-validation" })
}

// portsOf returns the TCP ports of all containers of a Pod except the proxy's.
func portsOf(pod []byte) ([]interception.Port, error) {
	var document struct {
		Spec struct {
			Containers []struct {
				Name  string
				Ports []struct {
					ContainerPort interception.Port
					Protocol      string
				}
			}
		}
	}
	if err := json.Unmarshal(pod, &document); err != nil {
		return nil, fmt.Errorf("not a Pod: %w", err)
	}
	var ports []interception.Port
	for _, c := range document.Spec.Containers {
		for _, p := range c.Ports {
			if c.Name != proxyContainer && (p.Protocol == "" || p.Protocol == "TCP") {
				ports = append(ports, p.ContainerPort)
			}
		}
	}
	if len(ports) == 0 {
		ports = []interception.Port{standardPort}
	}
	return ports, nil
}
