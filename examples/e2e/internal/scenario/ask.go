// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Answer is an application's answer to a request (program workload).
type Answer struct {
	// Application is the name of the application that answers.
	Application string
	// Address is the server's address and Remote the client's, as the application sees them.
	Address, Remote string
	// Via lists the proxies on the way: "outbound NAME" or "inbound NAME".
	Via []string
	// Asked is the answer that the application got from the URL it was sent to; nil without such a
	// URL.
	Asked *Answer
}

// Expect makes a pod's application query another pod at each of its addresses, and checks which
// application answers and which proxies were on the way.
func (s *Scenario) Expect(from, to *corev1.Pod, port int, via ...string) {
	s.t.Helper()
	for _, url := range URLs(to, port) {
		s.ExpectURL(from, url, to.Labels["app"], via...)
	}
}

// ExpectURL is [Scenario.Expect] with a URL.
func (s *Scenario) ExpectURL(from *corev1.Pod, url, application string, via ...string) {
	s.t.Helper()
	answer, err := s.Ask(from, url)
	if err != nil {
		s.t.Errorf("%s asks %s: %v", from.Name, url, err)
		return
	}
	if answer.Application != application || !slices.Equal(answer.Via, via) {
		s.t.Errorf("%s asks %s: %s answers via %q; it should be %s via %q", from.Name, url, answer.Application, answer.Via, application, via)
	}
}

// Ask makes a pod's application query a URL.
func (s *Scenario) Ask(from *corev1.Pod, url string) (Answer, error) {
	text, err := s.Exec(from, applicationContainer, "/workload", "get", url)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return Answer{}, fmt.Errorf("the answer %q: %w", text, err)
	}
	return answer, nil
}

// URLs returns a URL of a pod's application for each of its addresses.
func URLs(pod *corev1.Pod, port int) []string {
	var urls []string
	for _, address := range pod.Status.PodIPs {
		urls = append(urls, "http://"+net.JoinHostPort(address.IP, strconv.Itoa(port))+"/")
	}
	return urls
}

// Exec runs a command in a container, and returns its output.
func (s *Scenario) Exec(pod *corev1.Pod, container string, command ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), most)
	defer cancel()
	request := s.client().CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.Cluster.Config(), "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var output, complaints bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &output, Stderr: &complaints})
	if err != nil {
		return output.String(), fmt.Errorf("%q in %s: %w: %s", command, pod.Name, err, complaints.Bytes())
	}
	return output.String(), nil
}

// Logs returns the output of a pod's application.
func (s *Scenario) Logs(pod *corev1.Pod) string {
	s.t.Helper()
	return s.LogsOf(pod, applicationContainer)
}

// LogsOf returns the output of one of a pod's containers.
func (s *Scenario) LogsOf(pod *corev1.Pod, container string) string {
	s.t.Helper()
	var text []byte
	s.Do("logs of "+pod.Name, func(ctx context.Context) error {
		stream, err := s.client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).Stream(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		text, err = io.ReadAll(stream)
		return err
	})
	return string(text)
}

// Rules returns the rules in a pod's network namespace, as nft lists them; empty if it has no
// rules.
func (s *Scenario) Rules(pod *corev1.Pod) string {
	s.t.Helper()
	return s.nft(pod, "list", "ruleset")
}

// FlushRules removes all rules from a pod's network namespace.
func (s *Scenario) FlushRules(pod *corev1.Pod) {
	s.t.Helper()
	s.nft(pod, "flush", "ruleset")
}

func (s *Scenario) nft(pod *corev1.Pod, arguments ...string) string {
	s.t.Helper()
	said, err := s.PodNetwork(pod)(arguments...)
	if err != nil {
		s.t.Fatal(err)
	}
	return said
}

// PodNetwork returns a function that runs nft in a pod's network namespace. The function needs no
// API server.
func (s *Scenario) PodNetwork(pod *corev1.Pod) (nft func(arguments ...string) (string, error)) {
	s.t.Helper()
	number, err := s.Exec(pod, applicationContainer, "/workload", "namespace")
	if err != nil {
		s.t.Fatal(err)
	}
	node := s.NodeOf(pod)
	name, err := namespaceFile(node.Path("/run/netns"), strings.TrimSpace(number))
	if err != nil {
		s.t.Fatal(err)
	}
	return func(arguments ...string) (string, error) {
		ctx, cancel := context.WithTimeout(s.t.Context(), most)
		defer cancel()
		return node.Run(ctx, append([]string{"nsenter", "--net=" + filepath.Join("/run/netns", name), "nft"}, arguments...)...)
	}
}

// namespaceFile returns the name of the file, in a directory, at which the namespace with this
// number is mounted.
func namespaceFile(directory, number string) (string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		var info syscall.Stat_t
		if err := syscall.Stat(filepath.Join(directory, entry.Name()), &info); err != nil {
			return "", err
		}
		if strconv.FormatUint(info.Ino, 10) == number {
			return entry.Name(), nil
		}
	}
	return "", fmt.Errorf("namespace %s: %w in %s", number, os.ErrNotExist, directory)
}
