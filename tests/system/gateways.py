#!/usr/bin/env python3
"""Several gateways on one fleet share its nodes' slots: nobody is refused for what another one has, and no token is another one."""
import concurrent.futures
import signal

from system import PROMPT, TINY, Case, Stream, completion, main, request, wait_for

PROMPTS = (PROMPT, "And the earth was without form, and void. " * 4, "Let there be light. " * 3, "He called the light Day")
TOKENS = 40


class Gateways(Case):
    def another(self, fleet):
        """The URL of one more gateway of the fleet, when it is ready; and its process."""
        name = self.id().rsplit(".", 1)[1]
        gateway = self.process(name, "gateway", "--join", fleet.controller, "--token-file", fleet.token_file, "--http", "127.0.0.1:0")
        url = gateway.wait_output(r"http://[0-9.]+:[0-9]+")[0]
        wait_for("it to be ready", lambda: request(url, "GET", "/ready").status == 200)
        return url, gateway

    def texts(self, urls, clients, rounds):
        """Every client of every gateway asks for all prompts in turn; all must be answered."""
        def client(url, first):
            for i in range(rounds):
                prompt = PROMPTS[(first + i) % len(PROMPTS)]
                answer = request(url, "POST", "/v1/completions", completion(prompt=prompt, max_tokens=TOKENS))
                self.assertEqual(answer.status, 200, f"{url}: {answer.body}")
                self.assertEqual(answer.json()["choices"][0]["text"], self.expected[prompt])
        with concurrent.futures.ThreadPoolExecutor(clients * len(urls)) as pool:
            for done in [pool.submit(client, url, k) for k in range(clients) for url in urls]:
                done.result()

    def run_beside(self, *options):
        fleet = self.fleet(TINY, "--nodes", 3, "--node-memory", "64MiB", "--context", 512, "--sequences", 2, *options)
        second, _ = self.another(fleet)
        self.expected = {}
        for prompt in PROMPTS:
            answer = request(fleet.url, "POST", "/v1/completions", completion(prompt=prompt, max_tokens=TOKENS))
            self.expected[prompt] = answer.json()["choices"][0]["text"]
        self.texts([fleet.url, second], 2, 12)
        return fleet, second

    def test_guesses(self):
        self.run_beside("--draft-tokens", 8)

    def test_as_many_slots_as_one_of_them_runs(self):
        self.run_beside("--prefixes", 0)

    def test_prefixes_and_few_pages(self):
        self.run_beside("--cache-positions", 1024, "--draft-tokens", 4)

    def test_a_long_answer_of_one_lets_the_other_in(self):
        """The gateway that is refused gets the next slot, not the one that has them all and whose clients come again and again."""
        fleet = self.fleet(TINY, "--nodes", 2, "--node-memory", "64MiB", "--context", 512, "--sequences", 2, "--prefixes", 0)
        second, _ = self.another(fleet)
        streams = [Stream(fleet.url, max_tokens=200) for _ in range(12)]
        self.addCleanup(lambda: [s.close() for s in streams])
        streams[0].wait_events(5)
        answer = request(second, "POST", "/v1/completions", completion(max_tokens=4))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertTrue(any(not s.finished.is_set() for s in streams), "it came behind all of the first one's")
        for s in streams:
            self.assertTrue(s.finished.wait(60))
            self.assertIsNone(s.error)

    def test_a_gateway_that_comes_back_after_a_crash(self):
        """What the dead one ran is forgotten after two seconds; until then its heir waits."""
        fleet = self.fleet(TINY, "--nodes", 2, "--node-memory", "64MiB", "--context", 8192, "--sequences", 1, "--draft-tokens", 8,
                           "--prefixes", 0)
        first, process = self.another(fleet)
        text = request(first, "POST", "/v1/completions", completion(max_tokens=TOKENS)).json()["choices"][0]["text"]
        stream = Stream(first, max_tokens=4000)
        self.addCleanup(stream.close)
        stream.wait_events(10)
        process.stop(signal.SIGKILL)
        answer = request(fleet.url, "POST", "/v1/completions", completion(max_tokens=TOKENS))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json()["choices"][0]["text"], text)


if __name__ == "__main__":
    main()
